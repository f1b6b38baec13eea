"""The result of `lethe.methods.run`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lethe.reports.table import html_table, json_text, written
from lethe.tuning.local_run import LocalRuns

if TYPE_CHECKING:
    import pandas as pd

SHOWN = ("wall_time_s", "retain_accuracy", "forget_accuracy", "test_accuracy", "distance")


@dataclass(frozen=True, eq=False, repr=False)
class MethodRuns:
    """Unlearned models of one method. Give it to `lethe.evaluate` or `lethe.score` with the split.

    method: its id, or its file. folder: their checkpoints; a temporary one goes with this object.
    runs: times in seconds, accuracies within [0, 1], and distance of the weights from the original model's, by run.
    """

    method: str
    folder: Path
    runs: LocalRuns

    def __len__(self) -> int:
        return len(self.runs.runs)

    def as_json(self) -> dict[str, Any]:
        """Return what `lethe methods run --json` prints."""
        return self.runs.as_json()

    def to_json(self, path: str | Path | None = None) -> str:
        """Return times and accuracies as JSON, and write them to a file if one is named."""
        return written(json_text(self.as_json()), path)

    def to_frame(self) -> "pd.DataFrame":
        """Return a data frame with a row per run. Needs pandas."""
        import pandas as pd

        return pd.DataFrame([dict(run) for run in self.runs.runs]).rename_axis("run")

    def __repr__(self) -> str:
        return f"MethodRuns({self.method!r}, {len(self)} models, {self.runs.median('wall_time_s'):.3g} s each)"

    def _repr_html_(self) -> str:
        return html_table(("median of runs", self.method), [(name, f"{self.runs.median(name):.4g}") for name in SHOWN])
