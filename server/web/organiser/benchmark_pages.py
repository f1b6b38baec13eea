"""A benchmark in the browser: how far it is, its tables, the Pareto scatter and the hardest examples of a cell."""

from typing import Annotated, Any

from fastapi import Query, Request, Response

from lethe.benchmark.results import benchmark_results
from lethe.errors import NotFound
from lethe.reports.benchmark_tables import benchmark_tables, epsilon_by_method, epsilon_clip
from server.benchmarks import benchmarks
from server.deps import SessionDep
from server.web.charts import epsilon_charts, vega_charts
from server.web.deps import StaffDep
from server.web.page_router import page_router
from server.web.rendering import figure, page

router = page_router()
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
