"""What is said of arrays before metrics are computed: contradictions at once, doubts as sentences."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.array_catalogue import ARRAYS, CaptureLevel, Side
from lethe.metrics.core.arrays import class_labels
from lethe.metrics.core.derived_arrays import DERIVED, log_margin
from lethe.metrics.core.inputs import Inputs
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import metrics

CLIPPED = 10.0  # beyond it, stored confidences may be limited
MARGIN_TOLERANCE = 0.05  # what float16 leaves
FEW_MODELS = 16  # below it most metrics say little: the models of one side differ among themselves


class InputWarning(UserWarning):
    """A value looks as if it were something else than what is computed with."""


def require_consistent(inputs: Inputs) -> None:
    """Raise InvalidMetricInput for the first array that contradicts another, or holds values that it cannot."""
    for conflict in inputs.conflicts:
        side = None if conflict.side == Side.SHARED else conflict.side.value
        raise InvalidMetricInput(conflict.message, side=side)
    for side in inputs.sides:
        for name, known in ARRAYS.items():
            if not known.shared and known.level != CaptureLevel.WEIGHTS and inputs.has_stored(side, name):
                inputs.array(side, name)
    for name, known in ARRAYS.items():
        if known.shared and name.endswith("_labels") and inputs.has_stored(Side.SHARED, name):
            _require_labels(inputs, name)


def _require_labels(inputs: Inputs, name: str) -> None:
    """Raise InvalidMetricInput unless labels are whole numbers from 0, below the number of classes if it is known."""
    labels = inputs.array(Side.SHARED, name)
    n_classes = int(inputs.array(Side.SHARED, "n_classes")) if inputs.has(Side.SHARED, "n_classes") else None
    class_labels(
        labels,
        n_examples=len(labels),
        n_classes=int(np.max(labels)) + 1 if n_classes is None else n_classes,
        name=f"`{name}`",
    )


def input_warnings(inputs: Inputs, *, names_are_given: bool = False) -> list[str]:
    """Return what speaks against the arrays without forbidding them, in sentences.

    names_are_given: a person named the arrays, so that one which no metric reads is a mistake.
    """
    found = list(_size_warnings({side: inputs.n_models(side) for side in inputs.sides}))
    stored = [side for side in inputs.sides if inputs.has_stored(side, "confidences")]
    for side in stored:
        if side != Side.RETRAINED and Side.RETRAINED in stored:
            pair = (inputs.array(one, "confidences") for one in (side, Side.RETRAINED))
            found += [text.replace("the unlearned", f"the {side}") for text in scale_warnings(*pair)]
    found += _name_warnings(inputs) if names_are_given else ()
    found += _copy_warnings({side: inputs.array(side, "confidences") for side in stored})
    found += [text for side in stored if (text := _margin_warning(inputs, side))]
    return list(dict.fromkeys(found))


def _name_warnings(inputs: Inputs) -> Iterator[str]:
    """Yield the arrays that no metric reads, with the name that may be meant."""
    unusual = [place for place in inputs.stored_names() if place[1] not in ARRAYS and place[1] not in DERIVED]
    if not unusual:  # what follows imports every metric
        return
    read = {name for one in metrics().values() for need in one.needs.values() for _, name in need.sources}
    known = sorted(read | ARRAYS.keys() | DERIVED.keys())
    for side, name in unusual:
        if name not in read:
            meant = get_close_matches(name, known, n=1)
            yield f"no metric reads `{name}` of {side}" + (f"; did you mean `{meant[0]}`?" if meant else "")


def _copy_warnings(confidences: Mapping[Side, npt.NDArray[Any]]) -> Iterator[str]:
    """Yield which models of a side are equal, and which are models of the retrained side, too."""
    rows = {side: [row.tobytes() for row in values] for side, values in confidences.items() if values.ndim == 2}
    for side, own in rows.items():
        if side != Side.ORIGINAL and len(own) > len(set(own)):
            yield f"{len(own) - len(set(own))} of {len(own)} {side} models are equal to another one in `confidences`"
    for side in (Side.ORACLE, Side.UNLEARNED):
        if shared := set(rows.get(side, ())) & set(rows.get(Side.RETRAINED, ())):
            yield (
                f"{len(shared)} {side} models are among the retrained ones: compared with themselves, they look better "
                "than they are"
            )


def _margin_warning(inputs: Inputs, side: Side) -> str:
    """Return what to say where `confidences` are not those of `forget_logits`."""
    if not (inputs.has_stored(side, "forget_logits") and inputs.has(Side.SHARED, "forget_labels")):
        return ""
    given = inputs.array(side, "confidences")
    own = log_margin(inputs.array(side, "forget_logits"), inputs.array(Side.SHARED, "forget_labels"))
    unclipped = np.abs(own) < CLIPPED
    off = unclipped & (np.abs(given - own) > MARGIN_TOLERANCE * (1 + np.abs(own)))
    if off.sum() <= unclipped.sum() / 100:
        return ""
    return (
        f"the {side} `confidences` are not those of `forget_logits` and `forget_labels` in {int(off.sum())} of "
        f"{off.size} values: are they of the same models and examples, in the same order?"
    )


def _size_warnings(sizes: Mapping[Side, int | None]) -> Iterator[str]:
    unlearned, retrained = sizes.get(Side.UNLEARNED), sizes.get(Side.RETRAINED)
    if unlearned and retrained and unlearned != retrained:
        yield (
            f"{unlearned} unlearned and {retrained} retrained models: metrics that pair them are not computed, and the "
            "values of others depend on both numbers"
        )
    original = sizes.get(Side.ORIGINAL)
    if original and retrained and original not in (1, retrained):
        yield f"{original} original models; expected are 1, or as many as retrained ones ({retrained})"
    fewest = min((size for size in (unlearned, retrained) if size), default=FEW_MODELS)
    if fewest < FEW_MODELS:
        yield (
            f"only {fewest} models on a side: values depend on this number and intervals are wide; below {FEW_MODELS} "
            "read a value beside the oracle's alone"
        )


Array = npt.NDArray[np.float64]
SPREAD_RATIO = 8.0  # unlearned models spread wider or closer than retrained ones, yet not by so much
NEAR_ZERO = 0.01  # logits that come so near to 0 lie on both sides of it
MIN_VALUES = 20  # values; of fewer nothing is said


def scale_warnings(unlearned: Array, retrained: Array) -> list[str]:
    """Return what speaks against comparing the two, in sentences; nothing for sets on one scale.

    unlearned, retrained: shape (n_models, n_examples). Signs are ranges and spreads, so this is a hint, not a proof.
    """
    sides = {"unlearned": unlearned, "retrained": retrained}
    found = {name: _kind(values) for name, values in sides.items()}
    odd = {name: kind for name, kind in found.items() if kind}
    if odd:
        return [
            f"the {name} confidences look like {kind}: the score needs logits, log(p / (1 - p))"
            for name, kind in odd.items()
        ]
    spreads = {name: _spread(values) for name, values in sides.items() if values.size >= MIN_VALUES}
    if len(spreads) < len(sides):
        return []
    low, high = sorted(spreads, key=lambda name: spreads[name])
    if 0 < SPREAD_RATIO * spreads[low] < spreads[high]:
        ratio = spreads[high] / spreads[low]
        return [f"the {high} confidences spread {ratio:.0f} times as wide as the {low}: are both log(p / (1 - p))?"]
    return []


def _kind(values: Array) -> str | None:
    """Return what the values look like where that is not logits."""
    finite = values[np.isfinite(values)]
    if finite.size < MIN_VALUES or np.ptp(finite) == 0:
        return None
    if finite.min() >= 0 and finite.max() <= 1:
        return "probabilities"
    if finite.min() >= 0 and finite.max() <= 100 and finite.max() > 50 and np.median(finite) > 30:
        return "percentages"
    if finite.min() >= 0 and (np.median(finite) < 1 or finite.min() < NEAR_ZERO):
        return "losses, -log p"
    return "log-probabilities" if finite.max() <= 0 and finite.max() > -1e-3 else None


def _spread(values: Array) -> float:
    """Return the median distance from the median, over all models and examples."""
    finite = values[np.isfinite(values)]
    return float(np.median(np.abs(finite - np.median(finite)))) if finite.size else 0.0
