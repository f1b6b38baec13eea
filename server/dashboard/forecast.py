"""How long work waits, what the workers could do, and how long the re-scoring at the close will take."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import Annotated

from pydantic import Field
from sqlalchemy.orm import Session

from server.competitions.stored_file import stored_file
from server.cost_cache import CostCache
from server.dashboard import dashboard_repository
from server.models.competition import Competition, CompetitionState
from server.models.worker import Worker, WorkerState

WINDOW = timedelta(days=1)
WORKER_IS_LOST_AFTER = timedelta(minutes=5)
HOUR_S = 3600.0
_expected: CostCache[dict[str, int]] = CostCache()


@dataclass(frozen=True)
class Waits:
    """How long the shards of the last day waited for a worker, seconds: half, nine tenths, 99 of a hundred less."""

    median_s: float
    p90_s: float
    p99_s: float


@dataclass(frozen=True)
class Capacity:
    """What the workers that are there could do together."""

    workers: int
    runs_per_hour: Annotated[float | None, Field(description="null while no run of the last day tells")]
    waits: Waits | None


@dataclass(frozen=True)
class RescoringForecast:
    """Forecast for the close of a competition. seconds: None while unknown."""

    finals: int
    runs: int
    seconds: Annotated[float | None, Field(description="at full capacity")]


def measure_capacity(
    session: Session, competition_ids: Sequence[str], workers: Sequence[Worker], *, at: datetime
) -> Capacity:
    """Return what the shards of the last day say of waits and pace."""
    done = dashboard_repository.first_attempts(session, competition_ids, since=at - WINDOW)
    present = [w for w in workers if w.state == WorkerState.ACTIVE and at - w.seen_at < WORKER_IS_LOST_AFTER]
    busy_s = sum((ended - started).total_seconds() for _, started, ended, _ in done if ended)
    pace = HOUR_S * sum(runs for *_, runs in done) / busy_s if busy_s > 0 else None
    waited = sorted(max(0.0, (started - queued).total_seconds()) for queued, started, _, _ in done)
    return Capacity(
        workers=len(present),
        runs_per_hour=pace * len(present) if pace is not None else None,
        waits=Waits(*(waited[max(0, ceil(share * len(waited)) - 1)] for share in (0.5, 0.9, 0.99))) if waited else None,
    )


def forecast_rescoring(
    session: Session, shown: Sequence[Competition], evaluated: Sequence[Competition], capacity: Capacity
) -> dict[str, RescoringForecast]:
    """Return what the close will bring, by the name of each open competition. evaluated: their tasks, or themselves."""
    still_open = {c.id: c for c in shown if c.state == CompetitionState.OPEN}
    own = [each for each in evaluated if each.root_id in still_open]
    most = {each.id: stored_file(each).limits.final_selections for each in own}
    bind = session.get_bind()

    def again() -> dict[str, int]:
        with Session(bind) as another:
            return _expected_finals(another, most)

    key = (id(bind.engine), tuple(sorted(most.items())))
    expected = _expected.get(key, lambda: _expected_finals(session, most), in_background=again)
    finals: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    for each in own:
        finals[each.root_id] += expected.get(each.id, 0)
        runs[each.root_id] += expected.get(each.id, 0) * stored_file(each).n_models
    return {
        competition.slug: RescoringForecast(
            finals[competition_id],
            runs[competition_id],
            HOUR_S * runs[competition_id] / capacity.runs_per_hour if capacity.runs_per_hour else None,
        )
        for competition_id, competition in still_open.items()
    }


def _expected_finals(session: Session, most: Mapping[str, int]) -> dict[str, int]:
    """Return how many finals there will be if every team sends as many as it may (`most`) of those scored now."""
    expected: Counter[str] = Counter()
    for competition_id, scored in dashboard_repository.scored_by_team(session, list(most)):
        expected[competition_id] += min(scored, most[competition_id])
    return dict(expected)
