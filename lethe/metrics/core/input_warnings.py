"""What is said of arrays before metrics are computed: contradictions at once, doubts as sentences."""

from collections.abc import Iterator, Mapping

from lethe.metrics.core.array_catalogue import ARRAYS, Side
from lethe.metrics.core.inputs import Inputs
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.scale_check import scale_warnings

FEW_MODELS = 16  # below it most metrics say little: the models of one side differ among themselves


class InputWarning(UserWarning):
    """A value looks as if it were something else than what is computed with."""


def require_consistent(inputs: Inputs) -> None:
    """Raise InvalidMetricInput for the first array that contradicts another, or holds values that it cannot."""
    for conflict in inputs.conflicts:
        side = None if conflict.side == Side.SHARED else conflict.side.value
        raise InvalidMetricInput(conflict.message, side=side)
    for side in inputs.sides:
        for name in ("confidences", *(name for name in ARRAYS if name.endswith("_logits"))):
            if not ARRAYS[name].shared and inputs.has_stored(side, name):
                inputs.array(side, name)


def input_warnings(inputs: Inputs) -> list[str]:
    """Return what speaks against the arrays without forbidding them, in sentences."""
    found = list(_size_warnings({side: inputs.n_models(side) for side in inputs.sides}))
    stored = [side for side in inputs.sides if inputs.has_stored(side, "confidences")]
    for side in stored:
        if side != Side.RETRAINED and Side.RETRAINED in stored:
            pair = (inputs.array(one, "confidences") for one in (side, Side.RETRAINED))
            found += [text.replace("the unlearned", f"the {side}") for text in scale_warnings(*pair)]
    return list(dict.fromkeys(found))


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
