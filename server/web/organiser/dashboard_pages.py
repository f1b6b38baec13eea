"""The organisers' dashboard, and its figures."""

from dataclasses import asdict
from typing import Annotated

from fastapi import Depends, Form, Request, Response
from sqlalchemy.orm import Session

from lethe.errors import InvalidInput
from server.competitions import competitions
from server.dashboard import dashboard
from server.dashboard.dashboard import Dashboard
from server.deps import DatabaseDep, SessionDep
from server.models.account import Account
from server.web import sse
from server.web.charts import vega_charts
from server.web.cookies import Flash
from server.web.deps import MemberDep, StaffDep, require_administrator
from server.web.page_router import page_router
from server.web.rendering import figure, page, part, redirect, render
from server.worker_facts import host_of
from server.workers import registration

router = page_router()
Short = Annotated[str, Form(max_length=500)]


@router.get("/organise")
def dashboard_page(request: Request, session: SessionDep, viewer: StaffDep) -> Response:
    board, cordoned = _dashboard(session, viewer), registration.hosts(session)
    known = sorted({host_of(row.name) for row in board.workers if row.token_id is None})
    hosts = [(host, host) for host in dict.fromkeys([*known, *(row.host for row in cordoned)])]
    return page(request, "organise/dashboard.html", board=board, hosts=hosts, cordoned=cordoned)


@router.post("/organise/hosts", dependencies=[Depends(require_administrator)])
def act_on_host(
    request: Request,
    session: SessionDep,
    viewer: MemberDep,
    *,
    host: Short = "",
    act: Short = "",
    reason: Short = "",
) -> Response:
    """Take a host's workers out of service, or let them take work again."""
    if act == "uncordon":
        registration.uncordon(session, host, actor=viewer)
        done = f"{host} takes work again."
    elif act in ("cordon", "drain"):
        taken = registration.cordon(session, host, why=reason, actor=viewer, drain=act == "drain")
        done = f"{host} takes no new work." + (f" Shards returned to the queue: {taken}." if taken else "")
    else:
        raise InvalidInput(f"{act!r} is no act; allowed are cordon, drain, uncordon")
    return redirect(request, "/organise", flash=Flash("good", done))


@router.get("/organise/live")
def dashboard_part(request: Request, session: SessionDep, viewer: StaffDep) -> Response:
    """Send the part that changes, for a page that cannot listen."""
    return part(request, "organise/_dashboard_live.html", board=_dashboard(session, viewer))


@router.get("/organise/events")
def dashboard_events(request: Request, database: DatabaseDep, viewer: StaffDep) -> Response:
    """Stream the part that changes."""

    def frame() -> sse.Frame:
        with database.read() as session:
            board = _dashboard(session, viewer)
            return sse.Frame(render(request, "organise/_dashboard_live.html", board=board), is_last=False)

    return sse.stream(request, frame)


@router.get("/organise/figures/throughput.json")
def throughput_figure(session: SessionDep, viewer: StaffDep) -> Response:
    hours = dashboard.runs_by_hour(session, competitions.list_organised(session, viewer))
    return figure(vega_charts.throughput([{"hour": row.hour.isoformat(), "runs": row.runs} for row in hours]))


@router.get("/organise/figures/failures.json")
def failures_figure(session: SessionDep, viewer: StaffDep) -> Response:
    days = dashboard.failures_by_day(session, competitions.list_organised(session, viewer))
    rows = [asdict(row) | {"day": f"{row.day:%d %b}", "fault": vega_charts.FAULT_NAMES[row.fault]} for row in days]
    return figure(vega_charts.failures(rows))


def _dashboard(session: Session, viewer: Account) -> Dashboard:
    return dashboard.get_dashboard(session, competitions.list_organised(session, viewer))
