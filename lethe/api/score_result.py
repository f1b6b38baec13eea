"""The result of `lethe.score`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lethe.metrics.scoring.calibration import Suspicion, calibrate
from lethe.metrics.scoring.score import ModelOutputs, Score
from lethe.reports.table import html_table
from lethe.reports.written import json_text, written

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

COLUMNS = ("models", "score", "low", "high", "forgetting_quality", "retain_ratio", "test_ratio")


@dataclass(frozen=True, eq=False, repr=False)
class ScoreResult:
    """A score with its references.

    score: of the unlearned models. oracle, original: the same of these models, None where they were not given.
    signs: whether runs repeat each other or a retrained model. unlearned, retrained: what was compared.
    """

    score: Score
    oracle: Score | None
    original: Score | None
    signs: Suspicion
    unlearned: ModelOutputs
    retrained: ModelOutputs
    warnings: tuple[str, ...] = ()

    @property
    def value(self) -> float:
        """Return the final score, or F where utility was not measured."""
        return self.score.headline

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return the 95 % interval of `value`, None without resamples."""
        return self.score.interval

    @property
    def share_of_oracle(self) -> float | None:
        """Return `value` as a share of the oracle's; None without an oracle, or where the oracle's is 0."""
        return None if self.oracle is None or self.oracle.headline <= 0 else self.value / self.oracle.headline

    def as_json(self) -> dict[str, Any]:
        """Return what `lethe score --json` prints, without its warnings."""
        signs = ("repeated_runs", "copied_models", "deterministic", "copied")
        found = self.score.as_json() | {name: getattr(self.signs, name) for name in signs}
        if self.oracle is None:
            return found
        found |= {
            "oracle_forgetting_quality": self.oracle.forgetting_quality,
            "oracle_score": self.oracle.headline,
            "share_of_oracle": self.share_of_oracle,
        }
        if self.score.replicates is None:
            return found
        calibration = calibrate(self.score, self.oracle)
        return found | {
            "oracle_interval": None if self.oracle.interval is None else list(self.oracle.interval),
            "fraction_of_oracle": calibration.fraction,
            "fraction_interval": list(calibration.interval),
            "leaked": calibration.leaked,
        }

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the result as JSON, and write it to a file if one is named. docs/schemas/score.json describes it."""
        return written(json_text(self.as_json() | {"warnings": list(self.warnings)}), path)

    def to_frame(self) -> "pd.DataFrame":
        """Return a data frame with a row for unlearned, oracle and original models. Needs pandas."""
        import pandas as pd

        return pd.DataFrame([_row(name, score) for name, score in self._scores()], columns=list(COLUMNS))

    def plot(self) -> "Figure":
        """Return a figure of epsilon and of the hardest and the easiest example. Needs the extra `plots`."""
        from lethe.reports.score_picture import draw_score

        return draw_score(self.score, self.unlearned, self.retrained)

    def _scores(self) -> list[tuple[str, Score]]:
        given = {"unlearned": self.score, "oracle": self.oracle, "original": self.original}
        return [(name, score) for name, score in given.items() if score is not None]

    def __repr__(self) -> str:
        share = "" if self.share_of_oracle is None else f", {self.share_of_oracle:.1%} of the oracle's"
        return f"ScoreResult({self.value:.4g}{_ends(self.interval)}{share}, n_models={self.score.n_models})"

    def _repr_html_(self) -> str:
        rows = [
            (name, f"{one.headline:.4g}", _ends(one.interval).strip(), f"{one.forgetting_quality:.4g}")
            for name, one in self._scores()
        ]
        return html_table(("models", "score", "95 %", "F"), rows)


def _row(name: str, score: Score) -> tuple[Any, ...]:
    ends = (None, None) if score.interval is None else score.interval
    return name, score.headline, *ends, score.forgetting_quality, score.retain_ratio, score.test_ratio


def _ends(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else f" [{interval[0]:.4g}, {interval[1]:.4g}]"
