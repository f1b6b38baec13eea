"""Whether two submissions on one split differ by more than the draw of the models explains."""

from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import ndtr

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.resampling import NORMAL_QUANTILE_95, Replicates

SIGNIFICANCE = 0.05


@dataclass(frozen=True, eq=False)
class ScoredEntry:
    """What a comparison needs of one submission: its score and the replicates made with it."""

    headline: float
    replicates: Replicates


@dataclass(frozen=True)
class PairedComparison:
    """A paired comparison of two submissions.

    difference: first minus second headline score. standard_error: of the difference, over models.
    interval: 95 % interval of the difference. p_value: two-sided, normal; 1 for equal scores.
    """

    difference: float
    standard_error: float
    interval: tuple[float, float]
    p_value: float


def compare(first: ScoredEntry, second: ScoredEntry) -> PairedComparison:
    """Return the paired comparison of two submissions scored against the same retrained models.

    Replicate b of both left out the same retrained models and the same runs, so what they share cancels in the
    difference of the replicates; its spread is the standard error of the difference.
    Raises InvalidScoreInput if the replicates are not paired (another seed, number of models, or length).
    """
    a, b = first.replicates, second.replicates
    a.require_paired(b)
    difference = first.headline - second.headline
    error = a.factor * float((a.headline - b.headline).std(ddof=1))
    return PairedComparison(
        difference=difference,
        standard_error=error,
        interval=(difference - NORMAL_QUANTILE_95 * error, difference + NORMAL_QUANTILE_95 * error),
        p_value=two_sided_p_value(difference, error),
    )


def two_sided_p_value(difference: float, standard_error: float) -> float:
    """Return the chance that a normal difference of mean 0 is at least this large; 1 for no difference at all."""
    if difference == 0.0:
        return 1.0
    if standard_error == 0.0:
        return 0.0
    return float(2.0 * ndtr(-abs(difference) / standard_error))


def tied_groups(standings: Sequence[ScoredEntry], *, significance: float = SIGNIFICANCE) -> list[int]:
    """Return for every submission its group, counted from 0 at the top, in the order given.

    Down the ranking, a submission joins the group while the test against the group's best finds no difference at the
    level `significance`, within (0, 1); the first that differs heads the next group. Being tied is no equivalence (A
    with B and B with C, yet not A with C), so a group says only: none of these is shown to be below its head.
    Raises InvalidScoreInput for replicates that are not paired, or a level outside (0, 1).
    """
    if not 0.0 < significance < 1.0:
        raise InvalidScoreInput(f"significance must be within (0, 1), not {significance}")
    ranking = sorted(range(len(standings)), key=lambda k: -standings[k].headline)
    groups = [0] * len(standings)
    group = -1
    head: ScoredEntry | None = None
    for k in ranking:
        if head is None or compare(head, standings[k]).p_value < significance:
            head = standings[k]
            group += 1
        groups[k] = group
    return groups
