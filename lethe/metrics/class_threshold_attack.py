"""A membership attack with one threshold per class, chosen on shadow examples and applied to target examples."""

from dataclasses import dataclass

import numpy as np

from lethe.metrics.arrays import Bool, Float64, Int64
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
    thresholds, known, on_shadow = class_thresholds(
        shadow_members.values, shadow_members.labels, shadow_others.values, shadow_others.labels, n_classes
    )
    hits = np.count_nonzero((members.values >= thresholds[members.labels]) & known[members.labels])
    rejections = np.count_nonzero((others.values < thresholds[others.labels]) & known[others.labels])
    return on_shadow, float(0.5 * (hits / members.values.size + rejections / others.values.size))


@compiled
def class_thresholds(
    members: Float64, member_labels: Int64, others: Float64, other_labels: Int64, n_classes: int
) -> tuple[Float64, Bool, float]:
    """Return the threshold of every class, whether it has examples, and the mean balanced accuracy on all of them.

    A threshold is the observed value that separates best when values >= it are called members. The first of equally
    good values wins, members before others. 0, with accuracy 0, if either side of a class is empty, as in the program.
    """
    thresholds, known = np.zeros(n_classes), np.zeros(n_classes, np.bool_)
    total = 0.0
    for label in range(n_classes):
        inside, outside = members[member_labels == label], others[other_labels == label]
        n_examples = inside.size + outside.size
        known[label] = n_examples > 0
        if inside.size == 0 or outside.size == 0:
            continue
        values = np.concatenate((inside, outside))
        above = inside.size - np.searchsorted(np.sort(inside), values)
        below = np.searchsorted(np.sort(outside), values)
        best = 0.0
        for i in range(values.size):
            accuracy = 0.5 * (above[i] / inside.size + below[i] / outside.size)
            if accuracy > best:
                thresholds[label], best = values[i], accuracy
        total += best * n_examples
    return thresholds, known, total / (members.size + others.size)
