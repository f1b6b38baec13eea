"""Whether two sets of confidences are on one scale, as the score needs them: logits, log(p / (1 - p))."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
SPREAD_RATIO = 8.0  # unlearned models spread wider or closer than retrained ones, yet not by so much
NEAR_ZERO = 0.01  # logits that come so near to 0 lie on both sides of it
FEWEST = 20  # values; of fewer nothing is said


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
    spreads = {name: _spread(values) for name, values in sides.items() if values.size >= FEWEST}
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
    if finite.size < FEWEST or np.ptp(finite) == 0:
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
