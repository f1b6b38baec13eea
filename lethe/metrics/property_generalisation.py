"""Whether the planted confusion, or the removed class, still shows on images that the models never saw."""

import numpy.typing as npt

from lethe.metrics.confusion import ConfusionSet
from lethe.metrics.registry import Direction, Metric, Resampling
from lethe.metrics.result import MetricResult
from lethe.metrics.targeted_error import CONFUSION_NEEDS, TargetedErrorParameters, targeted_error_on


def property_generalisation(
    unlearned: npt.ArrayLike, retrained: npt.ArrayLike, *, classes: tuple[int, ...] | None = None
) -> MetricResult:
    """Return the mean targeted error on the test images of the classes, in [0, 1].

    unlearned, retrained, classes, table and errors: as for `targeted_error`.
    Source: Goel et al. 2022 (arXiv:2201.06640), section 3: property generalisation.
    """
    return targeted_error_on(unlearned, retrained, ConfusionSet.TEST, classes)


METRIC = Metric(
    id="property_generalisation",
    title="Targeted error on the test images (property generalisation)",
    function=property_generalisation,
    needs=CONFUSION_NEEDS,
    unit="share of the test images of the classes",
    direction=Direction.TOWARDS_RETRAINED,
    defaults=TargetedErrorParameters,
    resampling=Resampling.RUNS,
    bounds=(0.0, 1.0),
    source="Goel et al. 2022 (2201.06640), section 3, appendix C.2",
    formula="targeted_error, on the test set",
    paper_and_code="The formula is a share; the program and tables 7 and 8 hold the count, which is kept in the table.",
)
