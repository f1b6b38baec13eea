"""The organisers' dashboard: queue, workers, failures and splits of the competitions that somebody runs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum

from sqlalchemy.orm import Session

from server.competitions import competitions
from server.config import get_settings
from server.dashboard import dashboard_repository
from server.dashboard.forecast import Capacity, RescoringForecast, forecast_rescoring, measure_capacity
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
from server.models.worker import Worker

BEFORE_ITS_END = (CompetitionState.PREPARING, CompetitionState.READY, CompetitionState.OPEN)
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
            *limit_warnings_of([row for row in splits if row[2].state in BEFORE_ITS_END]),
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
