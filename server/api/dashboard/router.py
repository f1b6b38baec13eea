"""/api/v1/dashboard and /competitions/{slug}/overview: the state of what an organiser runs."""

from fastapi import APIRouter, Depends
from sqlalchemy.orm import Session

from server.api.auth_dependencies import CurrentAccount, organiser_routes, require_staff
from server.api.auth_dependencies import OrganisedCompetition as Organised
from server.api.dashboard.schemas import ActivityOut, DashboardOut, OverviewOut
from server.competitions import service as competitions
from server.dashboard import service
from server.deps import SessionDep
from server.models.competition import Competition
from server.problem_details import problems

staff = APIRouter(
    prefix="/dashboard", tags=["organisers"], dependencies=[Depends(require_staff)], responses=problems(401, 403)
)
organisers = organiser_routes()


@staff.get("")
def show_dashboard(session: SessionDep, account: CurrentAccount) -> DashboardOut:
    """Show the state of every competition that you run: queue, workers, failures, splits, warnings."""
    return DashboardOut.of(service.get_dashboard(session, competitions.list_organised(session, account)))


@staff.get("/activity")
def show_activity(session: SessionDep, account: CurrentAccount) -> ActivityOut:
    """Show the runs of each of the last 24 hours and the failures of the last seven days."""
    return _activity(session, competitions.list_organised(session, account))


@organisers.get("/overview")
def show_overview(session: SessionDep, competition: Organised) -> OverviewOut:
    """Show the state of one competition, with its submissions by stage and its number of teams."""
    return OverviewOut.of(
        service.get_dashboard(session, [competition]),
        stages=service.count_stages(session, competition),
        teams=service.count_teams(session, competition),
    )


@organisers.get("/activity")
def show_activity_of_competition(session: SessionDep, competition: Organised) -> ActivityOut:
    """Show the competition's runs of each of the last 24 hours and its failures of the last seven days."""
    return _activity(session, [competition])


def _activity(session: Session, shown: list[Competition]) -> ActivityOut:
    return ActivityOut(
        runs_by_hour=service.runs_by_hour(session, shown),
        failures_by_day=service.failures_by_day(session, shown),
    )
