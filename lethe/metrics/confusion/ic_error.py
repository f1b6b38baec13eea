"""The error on the classes under test, and on the classes that the confusion or the removal does not concern."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from lethe.metrics.confusion.confusion_matrices import ConfusionSet, forget_classes
from lethe.metrics.confusion.targeted_error import CONFUSION_NEEDS, TargetedErrorParameters
from lethe.metrics.core.arrays import Float64, Int64
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.core.registry import Direction, Metric, Resampling
from lethe.metrics.core.result import MetricResult


def ic_error(unlearned: Int64, retrained: Int64, *, classes: tuple[int, ...] | None = None) -> MetricResult:
    """Return the mean error on the test images of the classes under test, in [0, 1].

    unlearned, retrained, classes: as for `targeted_error`. per_run: of every model.
    table: mean of the retrained models; the error on the forget images against the given labels, which must rise, and
    against the true ones, which must fall.
    Raises InvalidMetricInput for a test set or forget set without images.
    Source: Goel et al. 2022 (arXiv:2201.06640), section 3.
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
    id="ic_error",
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
