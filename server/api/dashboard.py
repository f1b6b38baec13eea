"""/api/v1/dashboard and /competitions/{slug}/overview: the state of what an organiser runs."""

from datetime import datetime
from typing import Any, Self

from fastapi import APIRouter, Depends
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from server.api.auth_dependencies import CurrentAccount, organiser_routes, require_staff
from server.api.auth_dependencies import OrganisedCompetition as Organised
from server.api.schema import Out
from server.competitions import competitions
from server.dashboard import dashboard
from server.dashboard.dashboard import Capacity, DailyFailures, Dashboard, HourlyRuns, RescoringForecast
from server.dashboard.health_warnings import HealthWarning, Host
from server.dashboard.shown_work import FailureCount, Running, Waiting
from server.deps import SessionDep
from server.models.competition import Competition
from server.problem_details import problems


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
    warnings: list[HealthWarning]
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


staff = APIRouter(
    prefix="/dashboard", tags=["organisers"], dependencies=[Depends(require_staff)], responses=problems(401, 403)
)
organisers = organiser_routes()


@staff.get("")
def show_dashboard(session: SessionDep, account: CurrentAccount) -> DashboardOut:
    """Show the state of every competition that you run: queue, workers, failures, splits, warnings."""
    return DashboardOut.of(dashboard.get_dashboard(session, competitions.list_organised(session, account)))


@staff.get("/activity")
def show_activity(session: SessionDep, account: CurrentAccount) -> ActivityOut:
    """Show the runs of each of the last 24 hours and the failures of the last seven days."""
    return _activity(session, competitions.list_organised(session, account))


@organisers.get("/overview")
def show_overview(session: SessionDep, competition: Organised) -> OverviewOut:
    """Show the state of one competition, with its submissions by stage and its number of teams."""
    return OverviewOut.of(
        dashboard.get_dashboard(session, [competition]),
        stages=dashboard.count_stages(session, competition),
        teams=dashboard.count_teams(session, competition),
    )


@organisers.get("/activity")
def show_activity_of_competition(session: SessionDep, competition: Organised) -> ActivityOut:
    """Show the competition's runs of each of the last 24 hours and its failures of the last seven days."""
    return _activity(session, [competition])


def _activity(session: Session, shown: list[Competition]) -> ActivityOut:
    return ActivityOut(
        runs_by_hour=dashboard.runs_by_hour(session, shown), failures_by_day=dashboard.failures_by_day(session, shown)
    )
