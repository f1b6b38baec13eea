"""The result of `lethe.evaluate`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lethe.metrics.core.metric_evaluation import MetricEvaluation
from lethe.metrics.metric_json import evaluations_as_json
from lethe.reports.model_card import model_card
from lethe.reports.table import html_table
from lethe.reports.tidy_rows import COLUMNS, evaluation_rows, number_text
from lethe.reports.written import json_text, written

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


class Evaluation(Mapping[str, MetricEvaluation]):
    """Metrics by id, in the order asked; `evaluation["klom"].result.value` is one number.

    n_models: N, unlearned models: metrics of different N are not compared. warnings: what was said of the arrays.
    """

    def __init__(
        self, evaluations: Mapping[str, MetricEvaluation], *, n_models: int | None, warnings: tuple[str, ...] = ()
    ) -> None:
        self._evaluations = dict(evaluations)
        self.n_models = n_models
        self.warnings = warnings

    def __getitem__(self, metric_id: str) -> MetricEvaluation:
        if metric_id not in self._evaluations:
            raise KeyError(f"{metric_id!r} was not asked for; there are {', '.join(self)}")
        return self._evaluations[metric_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._evaluations)

    def __len__(self) -> int:
        return len(self._evaluations)

    def as_json(self, *, examples: bool = False) -> dict[str, Any]:
        """Return what `lethe evaluate --json` prints. examples: with values per example and histograms."""
        return evaluations_as_json(self._evaluations, n_models=self.n_models, examples=examples) | {
            "warnings": list(self.warnings)
        }

    def to_json(self, path: str | Path | None = None, *, examples: bool = False) -> str:
        """Return the results as JSON, and write them to a file if one is named. Schema: docs/schemas/metrics.json."""
        return written(json_text(self.as_json(examples=examples)), path)

    def to_frame(self) -> "pd.DataFrame":
        """Return a data frame with a row per metric: value, interval, oracle, original, notes. Needs pandas."""
        import pandas as pd

        return pd.DataFrame(evaluation_rows(self), columns=list(COLUMNS))

    def model_card(
        self,
        name: str,
        path: str | Path | None = None,
        *,
        description: str = "",
        licence: str | None = None,
        method: str | None = None,
        constants: Mapping[str, Any] | None = None,
        dataset: str | None = None,
    ) -> str:
        """Return a model card in Markdown, with the front matter of model hubs, and write it to a file if one is named.

        name: of the model. method, constants: what unlearned it. dataset: what it was trained and unlearned on.
        """
        card = model_card(
            self,
            name=name,
            n_models=self.n_models,
            description=description,
            licence=licence,
            method=method,
            constants=constants or {},
            dataset=dataset,
        )
        return written(card, path)

    def plot(self) -> "Figure":
        """Return a figure of the metrics, each beside the oracle and the original. Needs the extra `plots`."""
        from lethe.reports.metric_picture import draw_metrics

        return draw_metrics(self)

    def __repr__(self) -> str:
        computed = [name for name, found in self.items() if found.result is not None]
        shown = ", ".join(f"{name}={number_text(self[name].result)}" for name in computed[:3])
        more = ", ..." if len(computed) > 3 else ""
        left_out = f"; {len(self) - len(computed)} not computed" if len(computed) < len(self) else ""
        return f"Evaluation({len(computed)} metrics: {shown}{more}{left_out})"

    def _repr_html_(self) -> str:
        rows = []
        for name, found in self.items():
            notes = found.not_computed or "; ".join((*(found.result.notes if found.result else ()),))
            interval = found.result.interval if found.result else None
            ends = "" if interval is None else f"{interval[0]:.4g} to {interval[1]:.4g}"
            values = (number_text(found.result), ends, number_text(found.oracle), number_text(found.original))
            rows.append((name, *values, found.metric.unit, notes))
        return html_table(("metric", "value", "95 %", "oracle", "original", "unit", "note"), rows)
