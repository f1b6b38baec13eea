"""What a team may know of its score: not how it came about, unless the organisers open that."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from server.competitions.stored_file import stored_file
from server.leaderboard import service as boards
from server.models.evaluation import PrivateScore, PublicScore
from server.models.submission import Submission

RUN_TIME_DIGITS = 2  # of a run's time: what runs on hidden data take is told roughly only


@dataclass(frozen=True)
class Breakdown:
    """The factors of a score, and how the epsilons of the forget examples are spread.

    epsilon_percentiles: nats, by level: 0, 5, 25, 50, 75, 95, 100; empty where they were not stored.
    """

    forgetting_quality: float
    retain_ratio: float
    test_ratio: float
    epsilon_percentiles: dict[str, float]

    @classmethod
    def of_oracle(cls, oracle: dict[str, Any] | None) -> "Breakdown | None":
        """Return the same of exact retraining, as its split keeps it; None where it was not stored in full."""
        if not oracle or "forgetting_quality" not in oracle:
            return None
        return cls(
            float(oracle["forgetting_quality"]),
            float(oracle["retain_ratio"]),
            float(oracle["test_ratio"]),
            dict(oracle.get("epsilon_percentiles", {})),
        )


@dataclass(frozen=True)
class ShownScore:
    """A score on one split. run_time_s: median time of a run, to two digits. breakdown: where organisers open it."""

    final_score: float
    interval_low: float | None
    interval_high: float | None
    scorer_version: str
    computed_at: datetime
    run_time_s: float | None = None
    breakdown: Breakdown | None = None


def shown_score(score: PublicScore | PrivateScore, submission: Submission) -> ShownScore:
    """Return the score with what the competition's file opens of it."""
    metric = stored_file(submission.competition).scoring
    is_on_ladder = isinstance(score, PublicScore) and boards.shows_ladder(submission.competition)
    run_time_s = score.details.get("run_wall_time_s")
    return ShownScore(
        final_score=score.final_score,
        interval_low=score.interval_low if metric.show_intervals else None,
        interval_high=score.interval_high if metric.show_intervals else None,
        scorer_version=score.scorer_version,
        computed_at=score.computed_at,
        run_time_s=float(f"{run_time_s:.{RUN_TIME_DIGITS}g}") if run_time_s else None,
        breakdown=_breakdown(score) if metric.show_breakdown and not is_on_ladder else None,
    )


def _breakdown(score: PublicScore | PrivateScore) -> Breakdown:
    percentiles = dict(score.details.get("epsilon_percentiles", {}))
    return Breakdown(score.forgetting_quality, score.retain_ratio, score.test_ratio, percentiles)
