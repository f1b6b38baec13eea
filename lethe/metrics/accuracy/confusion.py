"""Metrics of confusion matrices: how often a planted confusion or a removed class is predicted, and other errors."""

from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from lethe.metrics.core.array_catalogue import Side
from lethe.metrics.core.arrays import Float64, Int64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Need, Parameters, Resampling
from lethe.metrics.core.result import Cell, MetricResult


class ConfusionSet(IntEnum):
    """The second axis of the stored array `confusion`."""

    FORGET_GIVEN_LABELS = 0
    FORGET_TRUE_LABELS = 1
    TEST = 2


def forget_classes(matrices: Int64, classes: Sequence[int] | None) -> tuple[int, ...]:
    """Return the classes under test: those given, else the true classes of the forget set.

    matrices: shape (n_models, 3, n_classes, n_classes). Raises InvalidMetricInput for a class twice or outside the
    range, and without examples.
    """
    n_classes = matrices.shape[-1]
    if classes is None:
        found = np.flatnonzero(matrices[:, ConfusionSet.FORGET_TRUE_LABELS].sum(axis=(0, 2)))
        if not found.size:
            raise InvalidMetricInput("the confusion matrices of the forget set, with true labels, count no example")
        return tuple(int(label) for label in found)
    if len(set(classes)) != len(classes) or not all(0 <= label < n_classes for label in classes) or not classes:
        raise InvalidMetricInput(f"classes must be different numbers within 0..{n_classes - 1}, not {tuple(classes)}")
    return tuple(classes)


def confused_counts(matrices: Int64, classes: Sequence[int] | Int64) -> Int64:
    """Return how many examples of one of the classes were predicted as another of them, shape (...).

    Source: Goel et al. 2022 (arXiv:2201.06640), equation C.2.2; their program, `Conf_Score`.
    """
    block = matrices[..., np.array(classes)[:, None], np.array(classes)]
    return np.asarray(block.sum(axis=(-2, -1)) - np.trace(block, axis1=-2, axis2=-1))


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


def ic_error(unlearned: Int64, retrained: Int64, *, classes: tuple[int, ...] | None = None) -> MetricResult:
    """Return the mean error on the test images of the classes under test, in [0, 1].

    unlearned, retrained, classes: as for `targeted_error`. per_run: of every model.
    table: mean of the retrained models; the error on the forget images against the given labels, which must rise, and
    against the true ones, which must fall.
    Raises InvalidMetricInput for a test set or forget set without images.
    """
    u, r = np.asarray(unlearned, np.int64), np.asarray(retrained, np.int64)
    chosen = list(forget_classes(u, classes))
    errors = error_on(u[:, ConfusionSet.TEST], chosen)
    every = list(range(u.shape[-1]))
    table = {
        "retrained": float(error_on(r[:, ConfusionSet.TEST], chosen).mean()),
        "forget_error_given_labels": float(error_on(u[:, ConfusionSet.FORGET_GIVEN_LABELS], every).mean()),
        "forget_error_true_labels": float(error_on(u[:, ConfusionSet.FORGET_TRUE_LABELS], every).mean()),
    }
    return MetricResult(float(errors.mean()), per_run=errors, table=table)


def error_on(matrices: npt.NDArray[np.int64], classes: list[int]) -> Float64:
    """Return the share of images of these classes that are predicted wrongly, shape (n_models,).

    matrices: shape (n_models, n_classes, n_classes). Raises InvalidMetricInput if there is no such image.
    """
    rows = matrices[:, classes]
    sizes = rows.sum(axis=(1, 2))
    if not sizes.all():
        raise InvalidMetricInput(f"the confusion matrices hold no image of classes {tuple(classes)}")
    right = matrices[:, classes, classes].sum(axis=1)
    return np.asarray((sizes - right) / sizes, dtype=np.float64)


IC_ERROR = Metric(
    title="Error on the classes under test",
    function=ic_error,
    needs=CONFUSION_NEEDS,
    unit="share of the test images of the classes",
    direction=Direction.TOWARDS_RETRAINED,
    defaults=TargetedErrorParameters,
    resampling=Resampling.RUNS,
    bounds=(0.0, 1.0),
    source="Goel et al. 2022 (2201.06640), section 3",
    formula="1 - sum_A cm[A,A] / sum_A cm[A,:], on the test set",
)


def ic_utility(unlearned: Int64, retrained: Int64, *, classes: tuple[int, ...] | None = None) -> MetricResult:
    """Return the mean error on the test images of all other classes, in [0, 1].

    unlearned, retrained, classes: as for `targeted_error`. per_run: of every model. table: mean of the retrained.
    Raises InvalidMetricInput if there is no other class.
    Source: Goel et al. 2022 (arXiv:2201.06640), section 3: utility.
    """
    u, r = np.asarray(unlearned, np.int64), np.asarray(retrained, np.int64)
    chosen = forget_classes(u, classes)
    others = [label for label in range(u.shape[-1]) if label not in chosen]
    if not others:
        raise InvalidMetricInput("the forget set holds every class: no other class is left to measure utility on")
    errors = error_on(u[:, ConfusionSet.TEST], others)
    table = {"retrained": float(error_on(r[:, ConfusionSet.TEST], others).mean())}
    return MetricResult(float(errors.mean()), per_run=errors, table=table)


IC_UTILITY = replace(
    IC_ERROR,
    id="ic_utility",
    title="Error on the other classes",
    function=ic_utility,
    unit="share of the test images of the other classes",
    formula="1 - sum cm[c,c] / sum cm[c,:] over the classes c not under test, on the test set",
)
