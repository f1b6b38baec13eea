"""`lethe.evaluate`: metrics of unlearned models, each beside the oracle's and the original's, and its result."""

import json
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lethe
from lethe.api.method_runs import Models, arrays_of
from lethe.api.split import Split, as_array, as_split
from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.input_warnings import InputWarning, input_warnings, require_consistent
from lethe.metrics.core.inputs import Inputs
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.metric_evaluation import MetricEvaluation, Request
from lethe.metrics.core.metric_evaluation import evaluate as evaluate_metrics
from lethe.metrics.core.metric_text import evaluations_as_json
from lethe.metrics.core.registry import Scope, metrics
from lethe.metrics.core.result import MetricResult
from lethe.reports.table import html_table, json_text, written

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


COLUMNS = (
    "metric", "parameters", "value", "low", "high", "standard_deviation", "oracle", "original", "unit", "direction",
    "not_computed", "notes",
)  # fmt: skip
TAGS = ("machine-unlearning", "lethe")


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

        return pd.DataFrame([_tidy_row(found) for found in self.values()], columns=list(COLUMNS))

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
        computed = {key: found for key, found in self.items() if found.result is not None}
        left_out = {key: found.not_computed for key, found in self.items() if found.result is None}
        settings = ", ".join(f"{key} = {value}" for key, value in (constants or {}).items())
        facts = (
            ("Method", " with ".join(filter(None, (method, settings)))),
            ("Data", dataset),
            (
                "Unlearned models",
                None if self.n_models is None else f"{self.n_models}; metrics of another number do not compare",
            ),
            ("Measured with", f"Lethe {lethe.__version__}"),
        )
        lines = [
            *_front_matter(computed, name=name, licence=licence, dataset=dataset),
            f"# {name}",
            "",
            *([description, ""] if description else []),
            *(f"- **{label}**: {text}" for label, text in facts if text),
            "",
            "## Unlearning",
            "",
            "| metric | value | 95 % interval | oracle | original | unit | better |",
            "|---|---|---|---|---|---|---|",
            *(_card_row(key, found) for key, found in computed.items()),
            "",
            "The oracle is a second set of models retrained without the forget set: what exact unlearning gives. The "
            "original is the model before unlearning. A value says something only beside these two.",
            *(["", "Not computed:", ""] if left_out else []),
            *(f"- `{key}`: {reason}" for key, reason in left_out.items()),
        ]
        return written("\n".join(lines) + "\n", path)

    def plot(self) -> "Figure":
        """Return a figure of the metrics, each beside the oracle and the original. Needs the extra `plots`."""
        from lethe.reports.benchmark_figures import draw_metrics

        return draw_metrics(self)

    def __repr__(self) -> str:
        computed = [name for name, found in self.items() if found.result is not None]
        shown = ", ".join(f"{name}={_number(self[name].result)}" for name in computed[:3])
        more = ", ..." if len(computed) > 3 else ""
        left_out = f"; {len(self) - len(computed)} not computed" if len(computed) < len(self) else ""
        return f"Evaluation({len(computed)} metrics: {shown}{more}{left_out})"

    def _repr_html_(self) -> str:
        rows = []
        for name, found in self.items():
            notes = found.not_computed or "; ".join((*(found.result.notes if found.result else ()),))
            rows.append((name, *_values(found), found.metric.unit, notes))
        return html_table(("metric", "value", "95 %", "oracle", "original", "unit", "note"), rows)


def _tidy_row(found: MetricEvaluation) -> tuple[Any, ...]:
    result = found.result
    low, high = (None, None) if result is None or result.interval is None else result.interval
    return (
        found.metric.id,
        json.dumps(found.parameters.model_dump(mode="json")),
        None if result is None else result.value,
        low,
        high,
        None if result is None else result.standard_deviation,
        None if found.oracle is None else found.oracle.value,
        None if found.original is None else found.original.value,
        found.metric.unit,
        found.metric.direction.value,
        found.not_computed,
        "; ".join((*(() if result is None else result.notes), *found.reference_notes)),
    )


def _number(result: MetricResult | None) -> str:
    return "—" if result is None or math.isnan(result.value) else f"{result.value:.4g}"


def _values(found: MetricEvaluation) -> tuple[str, str, str, str]:
    """Return value, interval, oracle and original as text, a dash where there is none."""
    ends = found.result.interval if found.result else None
    shown = "—" if ends is None else f"{ends[0]:.4g} to {ends[1]:.4g}"
    return _number(found.result), shown, _number(found.oracle), _number(found.original)


def _front_matter(
    computed: Mapping[str, MetricEvaluation], *, name: str, licence: str | None, dataset: str | None
) -> list[str]:
    """Return the lines between the dashes; every JSON string is a YAML string."""
    lines = ["---", f"tags: {json.dumps(TAGS)}"]
    if licence is not None:
        lines.append(f"license: {json.dumps(licence)}")
    results = [
        {"type": key, "name": found.metric.title, "value": found.result.value}
        for key, found in computed.items()
        if found.result is not None and found.result.value == found.result.value
    ]
    if results:
        entry = {
            "task": {"type": "machine-unlearning"},
            "dataset": {"type": dataset or "unknown", "name": dataset or "not stated"},
            "metrics": results,
        }
        lines.append(f"model-index: {json.dumps([{'name': name, 'results': [entry]}], default=float)}")
    return [*lines, "---", ""]


def _card_row(key: str, found: MetricEvaluation) -> str:
    cells = (f"`{key}`", *_values(found), found.metric.unit, found.metric.direction.value)
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def evaluate(
    unlearned: Models,
    retrained: Models | None = None,
    *,
    oracle: Models | None = None,
    original: Models | None = None,
    split: Split | str | Path | None = None,
    shared: Mapping[str, Any] | None = None,
    metrics: Iterable[Request] | Request | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: bool | None = None,
) -> Evaluation:
    """Return metrics of unlearned models, with intervals, beside those of the oracle and of the original model.

    unlearned, retrained, oracle, original: confidences, shape (n_models, n_examples); or arrays by name, such as
    `confidences` [N, S] or `forget_logits` [N, S, C] (docs/metrics); or a file of them (.npz, .safetensors). With a
    split, unlearned may also be a folder of checkpoints, torch modules or `lethe.MethodRuns`, and what it is compared
    with is the split's.
    shared: arrays of the split, such as `forget_labels` [S]; they may also lie in any side.
    metrics: ids, or pairs of an id and parameters; by default every metric whose arrays are there.
    seed: of the intervals. device: where modules and checkpoints are evaluated. progress: None for a bar where
    somebody looks on.
    Raises InvalidMetricInput where arrays contradict each other, UnknownMetric for an id that does not exist; what one
    metric lacks is said in the result. Warns (InputWarning) of values that look like another scale.
    """
    chosen = None if split is None else as_split(split)
    found = _inputs(
        {"unlearned": unlearned, "retrained": retrained, "oracle": oracle, "original": original},
        chosen,
        shared=shared,
        device=device,
        progress=progress,
    )
    require_consistent(found)
    said = input_warnings(found, names_are_given=chosen is None)
    for text in said:
        warnings.warn(text, InputWarning, stacklevel=2)
    requests = computable(found) if metrics is None else _listed(metrics)
    computed = evaluate_metrics(found, requests, seed=seed)
    return Evaluation(computed, n_models=found.n_models(Side.UNLEARNED), warnings=tuple(said))


def computable(inputs: Inputs) -> list[Request]:
    """Return every metric of single submissions whose arrays are there. Raises InvalidMetricInput if there is none."""
    known = [entry for entry in metrics().values() if entry.scope == Scope.SUBMISSION]
    found: list[Request] = [entry.id for entry in known if not inputs.missing(entry)]
    if not found:
        raise InvalidMetricInput(
            "no metric can be computed from these arrays; the least is `confidences` [models, examples] of the "
            "unlearned and of the retrained models"
        )
    return found


def _listed(given: Iterable[Request] | Request) -> list[Request]:
    """Return a list of requests; one alone may be an id, or a pair of an id and parameters."""
    if isinstance(given, str):
        return [given]
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], Mapping):
        return [(str(given[0]), given[1])]
    return [one if isinstance(one, str) else (one[0], one[1]) for one in given]


def _inputs(
    given: Mapping[str, Models | None],
    split: Split | None,
    *,
    shared: Mapping[str, Any] | None,
    device: str,
    progress: bool | None,
) -> Inputs:
    sides = {
        side: arrays_of(models, side=side, split=split, device=device, progress=progress)
        for side, models in given.items()
        if models is not None
    }
    own = None if shared is None else {name: as_array(values, name=f"`{name}`") for name, values in shared.items()}
    if split is None:
        return Inputs(**sides, shared=own)
    if others := sorted((sides.keys() | ({"shared"} if own else set())) - {"unlearned"}):
        raise InvalidMetricInput(f"`{others[0]}` and `split` are both given: a split has its own")
    return split.inputs(sides["unlearned"])
