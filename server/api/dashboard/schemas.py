"""What the routes of the dashboard return."""

from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, Field

from server.api.schema import Out
from server.dashboard.forecast import Capacity, RescoringForecast
from server.dashboard.health_warnings import Host
from server.dashboard.service import DailyFailures, Dashboard, HourlyRuns
from server.dashboard.shown_work import FailureCount, Running, Waiting


class WarningOut(Out):
    """One thing that is not in order."""

    text: str = Field(examples=["The public split of digits could not be prepared."])
    is_bad: bool = Field(description="whether it needs somebody now")
    competition: str = Field(default="", description="empty where it is about all")


class WorkerOut(Out):
    """A worker that was seen within the last day."""

    name: str
    state: str = Field(description="active, cooling, quarantined, draining, stopped", examples=["active"])
    detail: str = Field(description="why it takes nothing", examples=["cordoned: a new disk"])
    device: str = Field(examples=["cpu"])
    seen_at: datetime


class SplitStateOut(Out):
    """How far a split is prepared."""

    competition: str
    task: str = Field(description="of the competition; empty where it has none", examples=["faces"])
    visibility: str = Field(examples=["public"])
    state: str = Field(examples=["ready"])
    progress: float


class DashboardOut(Out):
    """Queue, workers, failures and splits of the competitions that the caller runs."""

    at: datetime
    competitions: dict[str, str] = Field(description="state by name", examples=[{"digits": "open"}])
    warnings: list[WarningOut]
    unfinished: int = Field(description="submissions that have not ended")
    runs_left: int
    runs_per_hour: int = Field(description="runs that ended within the last hour")
    empty_in_s: float | None = Field(description="until the queue is empty at that pace")
    waiting: list[Waiting] = Field(description="the longest waiting first; at most 50")
    running: list[Running] = Field(description="at most 50")
    workers: list[WorkerOut] = Field(description="at most 50")
    failures: list[FailureCount]
    splits: list[SplitStateOut]
    host: Host
    capacity: Capacity
    rescoring: dict[str, RescoringForecast] = Field(description="by the name of each open competition")

    @classmethod
    def of(cls, dashboard: Dashboard, **more: Any) -> Self:
        return cls.read(
            dashboard,
            competitions={competition.slug: competition.state for competition in dashboard.competitions},
            splits=[SplitStateOut.read(row, competition=slug, task=task) for slug, task, _, row in dashboard.splits],
            **more,
        )


class OverviewOut(DashboardOut):
    """The state of one competition."""

    stages: dict[str, int] = Field(description="submissions at each stage", examples=[{"scored": 12, "queued": 1}])
    teams: int


class ActivityOut(BaseModel):
    """Runs by hour and failures by day, the earliest first."""

    runs_by_hour: list[HourlyRuns]
    failures_by_day: list[DailyFailures]
