"""Submissions side by side: of the board, and a team's own."""

from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends, Query, Request, Response
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from lethe.errors import NotFound
from server.competitions import competitions
from server.deps import SessionDep
from server.disclosure import gate
from server.leaderboard import boards
from server.submission_analysis import comparison
from server.submission_analysis.comparison import MAX_COMPARED, ComparedMetric, SubmissionComparison
from server.submissions import submissions
from server.submissions import views as submission_views
from server.submissions.list_filter import Show
from server.web.charts import vega_charts
from server.web.deps import Place, PlaceDep, require_viewer
from server.web.page_router import page_router
from server.web.rendering import figure, page
from server.web.score_view import BETTER
from server.web.submission_lists import LINES

router = page_router()

FIRST_SHOWN = 8
HEAT_STEPS = 5
Chosen = Annotated[list[str], Query(max_length=100)]
Key = Annotated[str, Query(max_length=200)]


@router.get("/competitions/{slug}/compare", dependencies=[Depends(require_viewer)])
def comparison_page(
    request: Request,
    session: SessionDep,
    place: PlaceDep,
    *,
    submission: Chosen = [],  # noqa: B006 (FastAPI copies it)
    split: Visibility = Visibility.PUBLIC,
    x: Key = "",
    y: Key = "",
) -> Response:
    """Show the submissions in the address, by default the newest ones that the reader may compare."""
    others = _candidates(session, place, split)
    chosen = submission or [submission_id for submission_id, _ in others[:FIRST_SHOWN]]
    compared = _compare(session, place, split, chosen)
    axes = [metric for metric in compared.metrics if _is_axis(compared, metric)]
    keys = _chosen_axes(axes, x, y)
    asked = {"submission": chosen, "split": split.value, "x": keys[0], "y": keys[1]} if keys else {}
    return page(
        request,
        "comparison.html",
        place=place,
        tab="compare",
        compared=compared,
        better=BETTER,
        split=split.value,
        may_see_private=_may_see(place, Visibility.PRIVATE),
        candidates=dict(others) | {line.id: f"{line.team}: {line.note}" for line in compared.submissions},
        chosen=chosen,
        most=MAX_COMPARED,
        axes=[(metric.key, metric.key) for metric in axes],
        keys=keys,
        heat=heat_class,
        figure_query=urlencode(asked, doseq=True),
    )


@router.get("/competitions/{slug}/compare/figures/pareto.json", dependencies=[Depends(require_viewer)])
def pareto_figure(
    session: SessionDep,
    place: PlaceDep,
    *,
    submission: Chosen,
    split: Visibility = Visibility.PUBLIC,
    x: Key = "",
    y: Key = "",
) -> Response:
    """Send two metrics of the submissions, those on the Pareto frontier marked."""
    compared = _compare(session, place, split, submission)
    metrics = {metric.key: metric for metric in compared.metrics if _is_axis(compared, metric)}
    if x not in metrics or y not in metrics:
        raise NotFound("There is no such pair of metrics with values")
    across, up = metrics[x], metrics[y]
    return figure(
        vega_charts.scatter(_points(compared, across, up), x=across.key, y=up.key, kinds=vega_charts.PARETO_KINDS)
    )


def heat_class(value: float | None) -> str:
    """Return the class of a cell of a heat map: the sign and the strength of a correlation in steps."""
    if value is None:
        return "heat-none"
    step = round(abs(value) * HEAT_STEPS)
    return f"heat-{'minus' if value < 0 else 'plus'}-{step}"


def _may_see(place: Place, split: Visibility) -> bool:
    try:
        gate.check_metrics(place.competition, split, organiser=place.is_organiser)
    except NotFound:
        return False
    return True


def _candidates(session: Session, place: Place, split: Visibility) -> list[tuple[str, str]]:
    """Return what may be chosen: of the board's best first for organisers, then the newest."""
    gate.check_metrics(place.competition, split, organiser=place.is_organiser)
    names = dict(
        comparison.candidates(session, place.competition, split, team=place.team, is_organiser=place.is_organiser)
    )
    if not place.is_organiser:
        return list(names.items())
    board = boards.board_for(session, place.competition, split, organiser=True)
    best = {row.entry.submission_id: row.entry.team for row in board.rows[: 2 * FIRST_SHOWN] if row.entry.submission_id}
    return list(({key: names.get(key, team) for key, team in best.items()} | names).items())


def _compare(session: Session, place: Place, split: Visibility, chosen: list[str]) -> SubmissionComparison:
    return comparison.compare(
        session, place.competition, split, chosen, team=place.team, is_organiser=place.is_organiser
    )


def _is_axis(comparison: SubmissionComparison, metric: ComparedMetric) -> bool:
    return any(_loss(metric, line.values[metric.key].value) is not None for line in comparison.submissions)


def _chosen_axes(axes: list[ComparedMetric], x: str, y: str) -> tuple[str, str] | None:
    """Return the keys of the two axes: those asked for where they can be shown, else the first ones."""
    keys = [metric.key for metric in axes]
    if len(keys) < 2:
        return None
    across = x if x in keys else keys[0]
    up = y if y in keys and y != across else next(key for key in keys if key != across)
    return across, up


def _loss(metric: ComparedMetric, value: float | None) -> float | None:
    return comparison.loss(value, direction=metric.direction, oracle=metric.oracle)


def _points(compared: SubmissionComparison, across: ComparedMetric, up: ComparedMetric) -> list[dict[str, Any]]:
    points, losses, errors = [], [], []
    for number, line in enumerate(compared.submissions, start=1):
        values = [line.values[metric.key] for metric in (across, up)]
        pair = [_loss(metric, value.value) for metric, value in zip((across, up), values, strict=True)]
        if None in pair:
            continue
        points.append({"name": f"{number} {line.team}", "x": values[0].value, "y": values[1].value})
        losses.append([float(each or 0.0) for each in pair])
        errors.append([comparison.standard_error(value.interval_low, value.interval_high) for value in values])
    for point, on_it in zip(points, comparison.on_frontier(losses, errors), strict=True):
        point["kind"] = "on the frontier" if on_it else "dominated"
    for name, kind in (("oracle", "the oracle"), ("original", "original model")):
        ends = getattr(across, name), getattr(up, name)
        if None not in ends:
            points.append({"name": kind, "x": ends[0], "y": ends[1], "kind": kind})
    return points


Id = Annotated[str, Query(max_length=40)]


@router.get("/competitions/{slug}/submissions/compare", dependencies=[Depends(require_viewer)])
def own_comparison_page(
    request: Request, session: SessionDep, place: PlaceDep, *, first: Id = "", second: Id = ""
) -> Response:
    """Compare two of the hundred newest of the team that have a score."""
    mine = submissions.page_of_team(
        session, place.competition, place.team, show=Show.NEWEST, final_ids=(), offset=0, limit=LINES
    )
    shown = submission_views.view(session, mine, ended_in_full=False)
    views = {view.submission.id: view for view in shown if view.score}
    one, other = views.get(first), views.get(second)
    if (first and one is None) or (second and other is None):
        raise NotFound("Your team has no such scored submission among its newest")
    split = competitions.find_split(session, place.competition, Visibility.PUBLIC)
    return page(
        request,
        "own_comparison.html",
        place=place,
        tab="submissions",
        choices=[(key, _label(view)) for key, view in views.items()],
        first=one,
        second=other,
        offered=[*views, "", ""][:2],
        wanted=bool(first or second),
        oracle=gate.get_oracle_score(split),
        paired=submission_views.compare_own(session, one.submission, other.submission) if one and other else None,
    )


def _label(view: submission_views.SubmissionView) -> str:
    score = f"{view.score.final_score:.5f}" if view.score else ""
    return f"{view.submission.message or view.submission.filename}, {score}"
