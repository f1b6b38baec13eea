"""How often the confusion that was planted in the forget set, or the class that was removed, is still predicted."""

from dataclasses import replace

import numpy as np

from lethe.metrics.confusion.confusion_matrices import ConfusionSet, confused_counts, forget_classes
from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64, Int64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Parameters, Resampling
from lethe.metrics.core.result import Cell, MetricResult


class TargetedErrorParameters(Parameters):
    """classes: the confused classes, or the removed one; None: the true classes of the forget set."""

    classes: tuple[int, ...] | None = None


def targeted_error(unlearned: Int64, retrained: Int64, *, classes: tuple[int, ...] | None = None) -> MetricResult:
    """Return the mean targeted error on the forget images with their true labels, in [0, 1].

    unlearned, retrained: confusion counts, shape (n_models, 3, n_classes, n_classes) each; see `ConfusionSet`.
    Two or more classes: share of their images predicted as another of them. One class: share predicted as it.
    per_run: of every model. table: mean of the retrained models; mean count (what the published tables hold) and size
    of the set.
    The ideal is the retrained value, which is not 0. A model that never predicts these classes scores 0: read it
    beside `ic_error` and `ic_utility`.
    Raises InvalidMetricInput for matrices that hold no image of the classes.
    Source: Goel et al. 2022 (arXiv:2201.06640), section 3 and appendix C.2.
    """
    return targeted_error_on(unlearned, retrained, ConfusionSet.FORGET_TRUE_LABELS, classes)


def targeted_error_on(
    unlearned: Int64, retrained: Int64, part: ConfusionSet, classes: tuple[int, ...] | None
) -> MetricResult:
    """Return the targeted error on one of the stored sets; otherwise as `targeted_error`."""
    u, r = np.asarray(unlearned, np.int64), np.asarray(retrained, np.int64)
    chosen = forget_classes(u, classes)
    counts, sizes = _targeted(u[:, part], chosen)
    reference, reference_sizes = _targeted(r[:, part], chosen)
    if not sizes.all() or not reference_sizes.all():
        raise InvalidMetricInput(f"the {part.name.lower().replace('_', ' ')} set has no image of classes {chosen}")
    errors: Float64 = counts / sizes
    table: dict[str, Cell | list[Cell]] = {"retrained": float((reference / reference_sizes).mean())}
    table |= {"classes": list(chosen), "count": float(counts.mean()), "images": float(sizes.mean())}
    return MetricResult(float(errors.mean()), per_run=errors, table=table)


def _targeted(matrices: Int64, classes: tuple[int, ...]) -> tuple[Int64, Int64]:
    rows = matrices[:, list(classes)]
    if len(classes) == 1:
        return rows[:, 0, classes[0]], rows.sum(axis=(1, 2))
    return confused_counts(matrices, classes), np.asarray(rows.sum(axis=(1, 2)))


CONFUSION_NEEDS = {"unlearned": Need("confusion"), "retrained": Need("confusion", Side.RETRAINED)}

TARGETED_ERROR = Metric(
    id="targeted_error",
    title="Targeted error on the forget images (memorisation)",
    function=targeted_error,
    needs=CONFUSION_NEEDS,
    unit="share of the forget images",
    direction=Direction.TOWARDS_RETRAINED,
    defaults=TargetedErrorParameters,
    resampling=Resampling.RUNS,
    bounds=(0.0, 1.0),
    source="Goel et al. 2022 (2201.06640), section 3, appendix C.2",
    formula="(cm[A,B] + cm[B,A]) / (sum cm[A,:] + sum cm[B,:]); one class A: cm[A,A] / sum cm[A,:]",
    paper_and_code="The formula is a share; the program and tables 7 and 8 hold the count, which is kept in the table.",
)


def property_generalisation(
    unlearned: Int64, retrained: Int64, *, classes: tuple[int, ...] | None = None
) -> MetricResult:
    """Return the mean targeted error on the test images of the classes, in [0, 1].

    unlearned, retrained, classes, table and errors: as for `targeted_error`.
    Source: Goel et al. 2022 (arXiv:2201.06640), section 3: property generalisation.
    """
    return targeted_error_on(unlearned, retrained, ConfusionSet.TEST, classes)


PROPERTY_GENERALISATION = replace(
    TARGETED_ERROR,
    id="property_generalisation",
    title="Targeted error on the test images (property generalisation)",
    function=property_generalisation,
    unit="share of the test images of the classes",
    formula="targeted_error, on the test set",
)
