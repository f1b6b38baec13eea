"""The organisers' dashboard and benchmarks, with their figures."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Depends, Form, Query, Request, Response
from sqlalchemy.orm import Session

from lethe.benchmark.results import benchmark_results
from lethe.errors import InvalidInput, NotFound
from lethe.reports.benchmark_tables import benchmark_tables, epsilon_by_method, epsilon_clip
from server.benchmarks import benchmarks
from server.competitions import competitions
from server.dashboard import dashboard
from server.dashboard.dashboard import Dashboard
from server.deps import DatabaseDep, SessionDep
from server.models.account import Account
from server.models.worker import host_of
from server.web import sse
from server.web.charts import epsilon_charts, vega_charts
from server.web.cookies import Flash
from server.web.deps import MemberDep, StaffDep, require_administrator
from server.web.page_router import page_router
from server.web.rendering import figure, page, part, redirect, render
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
    request: Request, session: SessionDep, viewer: MemberDep, *, host: Short = "", act: Short = "", reason: Short = ""
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


CellNumber = Annotated[int, Query(ge=0, le=10_000)]


@router.get("/organise/benchmarks")
def benchmarks_page(request: Request, session: SessionDep, viewer: StaffDep) -> Response:
    return page(request, "organise/benchmarks.html", benchmarks=benchmarks.list_own(session, viewer))


@router.get("/organise/benchmarks/{slug}")
def benchmark_page(slug: str, request: Request, session: SessionDep, viewer: StaffDep) -> Response:
    benchmark = benchmarks.get(session, slug, account=viewer)
    return page(
        request,
        "organise/benchmark.html",
        benchmark=benchmark,
        progress=benchmarks.progress(session, benchmark),
        tables=list(benchmark_tables(benchmarks.get_results(session, benchmark))),
    )


@router.get("/organise/benchmarks/{slug}/figures/pareto.json")
def pareto_figure(slug: str, session: SessionDep, viewer: StaffDep, *, cell: CellNumber = 0) -> Response:
    content = benchmarks.get_results(session, benchmarks.get(session, slug, account=viewer))
    results = benchmark_results(content)
    _cell_name(content, cell)
    x, y = content["tables"]["pareto"][:2]
    points = zip(results.methods, results.metric(x)[cell], results.metric(y)[cell], strict=True)
    rows = [
        {"name": name, "kind": "reference" if name in results.references else "method", "x": float(a), "y": float(b)}
        for name, a, b in points
        if a == a and b == b  # noqa: PLR0124  NaN: there is no value
    ]
    return figure(vega_charts.scatter(rows, x=x, y=y, kinds=("method", "reference")))


@router.get("/organise/benchmarks/{slug}/figures/examples.json")
def examples_figure(slug: str, session: SessionDep, viewer: StaffDep, *, cell: CellNumber = 0) -> Response:
    content = benchmarks.get_results(session, benchmarks.get(session, slug, account=viewer))
    epsilon = epsilon_by_method(content, _cell_name(content, cell))
    clip = epsilon_clip(content)
    rows = [
        {"name": name, "example": number, "value": min(float(value), clip)}
        for name, values in epsilon.items()
        for number, value in enumerate(values)
    ]
    return figure(epsilon_charts.epsilon_strips(rows, clip=clip))


def _cell_name(content: dict[str, Any], number: int) -> str:
    names: list[str] = list(content["cells"])
    if number >= len(names):
        raise NotFound(f"The benchmark has {len(names)} cells; there is no cell {number}")
    return names[number]
