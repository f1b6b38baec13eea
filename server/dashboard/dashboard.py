"""The organisers' dashboard: queue, workers, failures and splits of their competitions; forecasts of waiting times."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from math import ceil
from typing import Annotated

from pydantic import Field
from sqlalchemy.orm import Session

from server.competitions import competitions
from server.competitions.stored_file import stored_file
from server.config import get_settings
from server.cost_cache import CostCache
from server.dashboard import dashboard_repository
from server.dashboard.health_warnings import (
    HealthWarning,
    Host,
    failure_warnings,
    host_warnings,
    limit_warnings_of,
    measure_host,
    queue_warnings,
    split_warnings,
    token_warnings,
    unserved_warnings,
)
from server.dashboard.shown_work import FailureCount, Running, Waiting
from server.db import now
from server.evaluations.unserved import find_unserved
from server.models.competition import Competition, CompetitionState, Split
from server.models.submission import Fault
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
    allowed = {each.id: stored_file(each).limits.final_selections for each in own}
    bind = session.get_bind()

    def again() -> dict[str, int]:
        with Session(bind) as another:
            return _expected_finals(another, allowed)

    key = (id(bind.engine), tuple(sorted(allowed.items())))
    expected = _expected.get(key, lambda: _expected_finals(session, allowed), in_background=again)
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


def _expected_finals(session: Session, allowed: Mapping[str, int]) -> dict[str, int]:
    """Return how many finals there will be if every team sends as many as it may (`allowed`) of those scored now."""
    expected: Counter[str] = Counter()
    for competition_id, scored in dashboard_repository.scored_by_team(session, list(allowed)):
        expected[competition_id] += min(scored, allowed[competition_id])
    return dict(expected)


NOT_ENDED = (CompetitionState.PREPARING, CompetitionState.READY, CompetitionState.OPEN)
RATE_WINDOW = timedelta(hours=1)
FAILURE_WINDOW = timedelta(days=7)
WORKER_WINDOW = timedelta(days=1)
THROUGHPUT_HOURS = 24
count_stages = dashboard_repository.count_stages
count_teams = dashboard_repository.count_teams


class Light(StrEnum):
    GOOD = "good"
    LOOK = "look"
    BAD = "bad"


@dataclass(frozen=True)
class Dashboard:
    """The state of some competitions and of the machine at one time."""

    at: datetime
    competitions: list[Competition]
    waiting: list[Waiting]
    running: list[Running]
    workers: Sequence[Worker]
    runs_left: int
    runs_per_hour: int
    unfinished: int
    failures: list[FailureCount]
    splits: Sequence[tuple[str, str, Competition, Split]]
    host: Host
    warnings: list[HealthWarning]
    capacity: Capacity
    rescoring: dict[str, RescoringForecast]

    def light(self, competition: Competition) -> Light:
        """Return how one competition is: what is wrong with all of them counts for those that take submissions."""
        is_busy = competition.state in (CompetitionState.OPEN, CompetitionState.CLOSED)
        mine = [w for w in self.warnings if w.competition == competition.slug or (not w.competition and is_busy)]
        return Light.BAD if any(w.is_bad for w in mine) else Light.LOOK if mine else Light.GOOD

    @property
    def use_of_capacity(self) -> float | None:
        """Share of what the workers could do that they did in the last hour; None while that is not known."""
        could = self.capacity.runs_per_hour
        return min(1.0, self.runs_per_hour / could) if could else None

    @property
    def empty_in_s(self) -> float | None:
        """Seconds until the queue is empty at the pace of the last hour; None if nothing was done in it."""
        return 3600 * self.runs_left / self.runs_per_hour if self.runs_per_hour and self.runs_left else None


@dataclass(frozen=True)
class HourlyRuns:
    """How many runs ended in the hour that begins at `hour`."""

    hour: datetime
    runs: int


@dataclass(frozen=True)
class DailyFailures:
    """How many submissions failed on one day (UTC) by one side's fault."""

    day: date
    fault: Fault
    count: int


def get_dashboard(session: Session, shown: list[Competition]) -> Dashboard:
    """Return the state of these competitions and of the machine."""
    at = now()
    own_ids = [competition.id for competition in shown]
    evaluated = competitions.evaluated(session, shown)
    ids = [each.id for each in evaluated]
    done = dashboard_repository.finished_shards(session, ids, since=at - RATE_WINDOW)
    waiting, running = dashboard_repository.waiting(session, ids), dashboard_repository.running(session, ids)
    workers = dashboard_repository.workers(session, seen_after=at - WORKER_WINDOW)
    splits = dashboard_repository.splits(session, ids)
    host = measure_host(get_settings().home)
    capacity = measure_capacity(session, ids, workers, at=at)
    failures = dashboard_repository.failures(session, ids, since=at - FAILURE_WINDOW)
    return Dashboard(
        at=at,
        competitions=shown,
        waiting=waiting,
        running=running,
        workers=workers,
        runs_left=dashboard_repository.queued_runs(session, ids),
        runs_per_hour=sum(runs for _, runs in done),
        unfinished=dashboard_repository.unfinished(session, own_ids),
        failures=failures,
        splits=splits,
        host=host,
        warnings=[
            *unserved_warnings(find_unserved(session), ids),
            *queue_warnings(waiting, running, at=at),
            *split_warnings(splits),
            *limit_warnings_of([row for row in splits if row[2].state in NOT_ENDED]),
            *failure_warnings(failures),
            *token_warnings(dashboard_repository.quarantined_tokens(session, own_ids)),
            *host_warnings(host),
        ],
        capacity=capacity,
        rescoring=forecast_rescoring(session, shown, evaluated, capacity),
    )


def runs_by_hour(session: Session, shown: Sequence[Competition]) -> list[HourlyRuns]:
    """Return the runs that ended in each of the last 24 hours and the current one, the earliest hour first."""
    this_hour = _hour(now())
    since = this_hour - timedelta(hours=THROUGHPUT_HOURS)
    counted: Counter[datetime] = Counter()
    ids = [each.id for each in competitions.evaluated(session, shown)]
    for ended_at, runs in dashboard_repository.finished_shards(session, ids, since=since):
        if ended_at:
            counted[_hour(ended_at)] += runs
    hours = [since + timedelta(hours=number) for number in range(THROUGHPUT_HOURS + 1)]
    return [HourlyRuns(hour, counted[hour]) for hour in hours]


def failures_by_day(session: Session, shown: Sequence[Competition]) -> list[DailyFailures]:
    """Return the failures of each of the last seven days and today, by whose fault they were; the earliest first."""
    at = now()
    ids = [each.id for each in competitions.evaluated(session, shown)]
    rows = dashboard_repository.failure_times(session, ids, since=at - FAILURE_WINDOW)
    counted = Counter((ended_at.date(), fault or "") for ended_at, fault in rows if ended_at)
    days = [(at - timedelta(days=ago)).date() for ago in range(FAILURE_WINDOW.days, -1, -1)]
    return [DailyFailures(day, fault, counted[day, fault.value]) for day in days for fault in Fault]


def count_unfinished(session: Session, competition: Competition) -> int:
    """Return how many submissions of the competition have not ended."""
    return dashboard_repository.unfinished(session, [competition.id])


def _hour(timestamp: datetime) -> datetime:
    return timestamp.replace(minute=0, second=0, microsecond=0)
