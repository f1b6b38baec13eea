"""The organisers' dashboard, and its figures."""

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from fastapi import Request, Response

from server.accounts.access import DatabaseDep
from server.db import now
from server.deps import SessionDep
from server.web import figures, live
from server.web.deps import StaffDep
from server.web.organising import dashboard_repository as repository
from server.web.organising.dashboard import FAILURE_WINDOW, look, organised
from server.web.rendering import figure, page, part, render
from server.web.routing import page_router

router = page_router()

THROUGHPUT_HOURS = 24


@router.get("/organise")
def dashboard_page(request: Request, session: SessionDep, viewer: StaffDep) -> Response:
    return page(request, "organise/dashboard.html", board=look(session, organised(session, viewer)))


@router.get("/organise/live")
def dashboard_part(request: Request, session: SessionDep, viewer: StaffDep) -> Response:
    """Send the part that changes, for a page that cannot listen."""
    return part(request, "organise/_dashboard_live.html", board=look(session, organised(session, viewer)))


@router.get("/organise/events")
def dashboard_events(request: Request, database: DatabaseDep, viewer: StaffDep) -> Response:
    """Stream the part that changes."""

    def frame() -> live.Frame:
        with database.read() as session:
            board = look(session, organised(session, viewer))
            return live.Frame(render(request, "organise/_dashboard_live.html", board=board), is_last=False)

    return live.stream(request, frame)


@router.get("/organise/figures/throughput.json")
def throughput_figure(session: SessionDep, viewer: StaffDep) -> Response:
    ids = [competition.id for competition in organised(session, viewer)]
    at = now().replace(minute=0, second=0, microsecond=0)
    hours: Counter[datetime] = Counter()
    for ended_at, runs in repository.finished_shards(session, ids, since=at - timedelta(hours=THROUGHPUT_HOURS)):
        if ended_at:
            hours[ended_at.replace(minute=0, second=0, microsecond=0)] += runs
    rows: list[dict[str, Any]] = []
    for ago in range(THROUGHPUT_HOURS, -1, -1):
        hour = at - timedelta(hours=ago)
        rows.append({"hour": hour.isoformat(), "runs": hours[hour]})
    return figure(figures.throughput(rows))


@router.get("/organise/figures/failures.json")
def failures_figure(session: SessionDep, viewer: StaffDep) -> Response:
    ids = [competition.id for competition in organised(session, viewer)]
    at = now()
    counted = Counter(
        (ended_at.date(), fault or "")
        for ended_at, fault in repository.failures_by_day(session, ids, since=at - FAILURE_WINDOW)
        if ended_at
    )
    days = [(at - timedelta(days=ago)).date() for ago in range(FAILURE_WINDOW.days, -1, -1)]
    rows = [
        {"day": f"{day:%d %b}", "fault": name, "count": counted[day, fault]}
        for day in days
        for fault, name in figures.FAULT_NAMES.items()
    ]
    return figure(figures.failures(rows))
