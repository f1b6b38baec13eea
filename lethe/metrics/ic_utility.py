"""The error on the classes that the confusion, or the removal, does not concern."""

import numpy.typing as npt

from lethe.metrics.arrays import require_same_classes
from lethe.metrics.confusion import ConfusionSet, confusion_matrices, forget_classes
from lethe.metrics.ic_error import error_on
from lethe.metrics.invalid_input import InvalidMetricInput
from lethe.metrics.registry import Direction, Metric, Resampling
from lethe.metrics.result import MetricResult
from lethe.metrics.targeted_error import CONFUSION_NEEDS, TargetedErrorParameters


def ic_utility(
    unlearned: npt.ArrayLike, retrained: npt.ArrayLike, *, classes: tuple[int, ...] | None = None
) -> MetricResult:
    """Return the mean error on the test images of all other classes, in [0, 1].

    unlearned, retrained, classes: as for `targeted_error`. per_run: of every model. table: mean of the retrained.
    Raises InvalidMetricInput if there is no other class.
    Source: Goel et al. 2022 (arXiv:2201.06640), section 3: utility.
    """
    u, r = confusion_matrices(unlearned, side="unlearned"), confusion_matrices(retrained, side="retrained")
    n_classes = require_same_classes(unlearned=u, retrained=r)
    chosen = forget_classes(u, classes)
    others = [label for label in range(n_classes) if label not in chosen]
    if not others:
        raise InvalidMetricInput("the forget set holds every class: no other class is left to measure utility on")
    errors = error_on(u[:, ConfusionSet.TEST], others)
    table = {"retrained": float(error_on(r[:, ConfusionSet.TEST], others).mean())}
    return MetricResult(float(errors.mean()), per_run=errors, table=table)


METRIC = Metric(
    id="ic_utility",
    title="Error on the other classes",
    function=ic_utility,
    needs=CONFUSION_NEEDS,
    unit="share of the test images of the other classes",
    direction=Direction.TOWARDS_RETRAINED,
    defaults=TargetedErrorParameters,
    resampling=Resampling.RUNS,
    bounds=(0.0, 1.0),
    source="Goel et al. 2022 (2201.06640), section 3",
    formula="1 - sum cm[c,c] / sum cm[c,:] over the classes c not under test, on the test set",
)
