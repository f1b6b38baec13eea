"""A membership attack with one threshold per class, chosen on shadow examples and applied to target examples."""

from dataclasses import dataclass

import numpy as np

from lethe.metrics.arrays import Float64, Int64
from lethe.metrics.compiled import compiled


@dataclass(frozen=True, eq=False)
class Scored:
    """Examples as the attack sees them. values: shape (n,), larger means likelier a member. labels: shape (n,)."""

    values: Float64
    labels: Int64


def attack_accuracy(
    shadow_members: Scored, shadow_others: Scored, members: Scored, others: Scored, *, n_classes: int
) -> tuple[float, float]:
    """Return the balanced accuracy on the shadow examples, and on the target examples, in [0, 1] each.

    A class without shadow examples takes no part: none of its targets counts as recognised.
    Source: Song and Mittal 2021 (arXiv:2003.10595), section 4; their program, `_mem_inf_thre`, as changed by
    Goel et al. 2022.
    """
    on_shadow, hits, rejections = 0.0, 0, 0
    for label in range(n_classes):
        inside, outside = _of(shadow_members, label), _of(shadow_others, label)
        n_shadow = inside.size + outside.size
        if n_shadow == 0:
            continue
        threshold, accuracy = best_threshold(inside, outside)
        on_shadow += accuracy * n_shadow
        hits += int(np.count_nonzero(_of(members, label) >= threshold))
        rejections += int(np.count_nonzero(_of(others, label) < threshold))
    on_shadow /= shadow_members.values.size + shadow_others.values.size
    return float(on_shadow), 0.5 * (hits / members.values.size + rejections / others.values.size)


def _of(examples: Scored, label: int) -> Float64:
    return np.asarray(examples.values[examples.labels == label])


@compiled
def best_threshold(members: Float64, others: Float64) -> tuple[float, float]:
    """Return the observed value that separates best when values >= it are called members, and its balanced accuracy.

    The first of equally good values wins, members before others. (0, 0) if either is empty, as in the program.
    """
    if members.size == 0 or others.size == 0:
        return 0.0, 0.0
    values = np.concatenate((members, others))
    above = members.size - np.searchsorted(np.sort(members), values)
    below = np.searchsorted(np.sort(others), values)
    threshold, best = 0.0, 0.0
    for i in range(values.size):
        accuracy = 0.5 * (above[i] / members.size + below[i] / others.size)
        if accuracy > best:
            threshold, best = values[i], accuracy
    return threshold, best
