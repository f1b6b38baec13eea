"""What the routes of the dashboard return."""

from datetime import date, datetime
from typing import Any, Self

from pydantic import BaseModel, Field

from server.api.schema import Out
from server.dashboard.service import Dashboard
from server.models.submission import Fault


class WarningOut(Out):
    """One thing that is not in order."""

    text: str = Field(examples=["The public split of digits could not be prepared."])
    is_bad: bool = Field(description="whether it needs somebody now")
    competition: str = Field(default="", description="empty where it is about all")


class WaitingOut(Out):
    """The queued work of one team."""

    competition: str = Field(examples=["digits"])
    team: str = Field(examples=["ada"])
    shards: int
    runs: int
    oldest_at: datetime


class RunningOut(Out):
    """A shard that a worker holds."""

    worker: str | None
    competition: str
    team: str
    submission_id: str
    first_run: int
    n_runs: int
    runs_done: int
    attempt: int
    lease_expires_at: datetime | None


class WorkerOut(Out):
    """A worker that was seen within the last day."""

    name: str
    state: str = Field(description="active, cooling, quarantined, draining, stopped", examples=["active"])
    detail: str = Field(description="why it takes nothing", examples=["cordoned: a new disk"])
    device: str = Field(examples=["cpu"])
    seen_at: datetime


class FailureCountOut(Out):
    """How many submissions failed in one way within seven days."""

    error_class: str | None = Field(examples=["exception"])
    fault: str | None = Field(examples=["participant"])
    count: int
    newest_at: datetime | None
    competition: str = Field(examples=["digits"])
    teams: int = Field(description="how many teams failed so")


class SplitStateOut(Out):
    """How far a split is prepared."""

    competition: str
    visibility: str = Field(examples=["public"])
    state: str = Field(examples=["ready"])
    progress: float


class HostOut(Out):
    """Free disk and memory of the web server's machine, bytes."""

    disk_free: int
    disk_total: int
    memory_free: int | None


class WaitsOut(Out):
    """How long the shards of the last day waited for a worker."""

    median_s: float
    p90_s: float
    p99_s: float


class CapacityOut(Out):
    """What the workers that are there could do."""

    workers: int
    runs_per_hour: float | None = Field(description="null while no run of the last day tells")
    waits: WaitsOut | None


class RescoringForecastOut(Out):
    """What the close of a competition will bring."""

    finals: int
    runs: int
    seconds: float | None = Field(description="at full capacity")


class DashboardOut(Out):
    """Queue, workers, failures and splits of the competitions that the caller runs."""

    at: datetime
    competitions: dict[str, str] = Field(description="state by name", examples=[{"digits": "open"}])
    warnings: list[WarningOut]
    unfinished: int = Field(description="submissions that have not ended")
    runs_left: int
    runs_per_hour: int = Field(description="runs that ended within the last hour")
    empty_in_s: float | None = Field(description="until the queue is empty at that pace")
    waiting: list[WaitingOut] = Field(description="the longest waiting first; at most 50")
    running: list[RunningOut] = Field(description="at most 50")
    workers: list[WorkerOut] = Field(description="at most 50")
    failures: list[FailureCountOut]
    splits: list[SplitStateOut]
    host: HostOut
    capacity: CapacityOut
    rescoring: dict[str, RescoringForecastOut] = Field(description="by the name of each open competition")

    @classmethod
    def of(cls, dashboard: Dashboard, **more: Any) -> Self:
        return cls.read(
            dashboard,
            competitions={competition.slug: competition.state for competition in dashboard.competitions},
            splits=[SplitStateOut.read(row, competition=slug) for slug, row in dashboard.splits],
            **more,
        )


class OverviewOut(DashboardOut):
    """The state of one competition."""

    stages: dict[str, int] = Field(description="submissions at each stage", examples=[{"scored": 12, "queued": 1}])
    teams: int


class HourlyRunsOut(Out):
    """Runs that ended within one hour."""

    hour: datetime
    runs: int


class DailyFailuresOut(Out):
    """Submissions that failed on one day by one side's fault."""

    day: date
    fault: Fault
    count: int


class ActivityOut(BaseModel):
    """Runs by hour and failures by day, the earliest first."""

    runs_by_hour: list[HourlyRunsOut]
    failures_by_day: list[DailyFailuresOut]
