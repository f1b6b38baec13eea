"""`lethe.evaluate`: metrics of unlearned models, each beside the oracle's and the original's."""

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lethe.api.evaluation import Evaluation
from lethe.api.given_models import Models, arrays_of
from lethe.api.split import Split, as_array, as_split
from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.input_warnings import InputWarning, input_warnings, require_consistent
from lethe.metrics.core.inputs import Inputs
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.metric_evaluation import Request
from lethe.metrics.core.metric_evaluation import evaluate as evaluate_metrics
from lethe.metrics.core.registry import Scope, metrics


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
