"""The leaderboard page."""

from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Query, Request, Response
from fastapi.responses import HTMLResponse
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from lethe.errors import NotFound
from lethe.metrics.scoring.attacks.family import few_models_warnings, smallest_detectable_shift
from server.competitions import competitions, lifecycle
from server.competitions.lifecycle import is_revealed
from server.db import now
from server.deps import SessionDep
from server.disclosure import gate
from server.errors import NotRevealed, status_of
from server.leaderboard import boards
from server.leaderboard.boards import Board
from server.leaderboard.ranking import Row, RowKind
from server.submissions import submissions
from server.submissions import views as submission_views
from server.submissions.baselines import baseline_names
from server.submissions.list_filter import Show
from server.submissions.score_explanation import find_explanation
from server.submissions.views import SubmissionView
from server.web import leaderboard_view
from server.web.charts import vega_charts
from server.web.competition_pages import warnings_of_limits
from server.web.deps import Place, PlaceDep
from server.web.page_router import page_router
from server.web.rendering import figure, page
from server.web.score_view import BETTER_IN_WORDS, find_breakdown
from server.web.submission_lists import LINES

router = page_router(is_public=True)

CHARTED_TEAMS = 10
SLOPED_TEAMS = 30


@router.get("/competitions/{slug}/leaderboard")
def leaderboard_page(
    request: Request,
    session: SessionDep,
    place: PlaceDep,
    *,
    board: Visibility = Visibility.PUBLIC,
    phase: Annotated[str, Query(max_length=40)] = "",
    q: Annotated[str, Query(max_length=60)] = "",
    page_number: Annotated[int, Query(alias="page", ge=1, le=100_000)] = 1,
    part: str = "",
) -> Response:
    """Show one page of a board; with `part=rows` only its lines, which the page asks for while it is scrolled."""
    try:
        shown = boards.board_for(session, place.competition, board, organiser=place.is_organiser, phase=phase)
    except NotRevealed as error:
        names = lifecycle.phase_names(place.file)
        seen = {"place": place, "tab": "leaderboard", "error": error, "phases": names}
        return page(request, "sealed_board.html", status=status_of(error), **seen)
    rows = shown.matching(q)
    pages = leaderboard_view.count_pages(rows)
    own_id = place.team.id if place.team else None

    def page_url(number: int, **more: str) -> str:
        base = {"board": board.value} if board is Visibility.PRIVATE else {"phase": phase} if phase else {}
        return f"?{urlencode({**base, **({'q': q} if q else {}), 'page': number, **more})}"

    next_url = page_url(page_number + 1, part="rows") if page_number < pages else ""
    moves = None
    if board is Visibility.PRIVATE:
        lines = leaderboard_view.board_lines(rows, page_number)
        moves = boards.shake_up(session, place.competition, lines, organiser=place.is_organiser)
    html = leaderboard_view.rows_html(
        shown,
        rows,
        number=page_number,
        next_url=next_url,
        own_team_id=own_id,
        moves=moves,
        settings={name: label for label, name in baseline_names(place.file).items()},
    )
    if part == "rows":
        return HTMLResponse(html, headers={"Cache-Control": "private, no-cache"})
    first = (page_number - 1) * leaderboard_view.LINES + 1
    return page(
        request,
        "leaderboard.html",
        place=place,
        tab="leaderboard",
        board=shown,
        detectable_shift=smallest_detectable_shift(shown.n_models),
        few_models=few_models_warnings(shown.n_models),
        limit_warnings=_of_limits(session, place),
        rows_html=html,
        query=q,
        phase=phase,
        phases=lifecycle.phase_names(place.file),
        is_private=board is Visibility.PRIVATE,
        is_sealed=not is_revealed(place.competition),
        may_see_private=gate.may_see_private(place.competition, organiser=place.is_organiser),
        leader=shown.leader,
        has_moves=moves is not None,
        has_unconfirmed=any(row.entry.kind is RowKind.UNCONFIRMED for row in shown.rows),
        better=BETTER_IN_WORDS,
        has_intervals=shown.interval_scale is not None,
        interval_ticks=leaderboard_view.axis_ticks(shown.interval_scale) if shown.interval_scale else [],
        strip=leaderboard_view.make_strip(shown, shown.get_row(own_id) if own_id else None),
        pages=pages,
        page_number=page_number,
        page_url=page_url,
        first_line=first,
        last_line=min(first + leaderboard_view.LINES - 1, len(rows)),
        total=len(rows),
        **_own(place, shown, phase=phase),
    )


def _of_limits(session: Session, place: Place) -> list[str]:
    """Return the warning for organisers where an entry that retrains ranks first."""
    split = competitions.find_split(session, place.competition, Visibility.PUBLIC) if place.is_organiser else None
    return warnings_of_limits(place, split) if split else []


@router.get("/competitions/{slug}/teams/{team_id}")
def team_on_board_page(team_id: str, request: Request, session: SessionDep, place: PlaceDep) -> Response:
    """Show what the boards tell of one team. Raises NotFound for one that is on no board that the reader may see."""
    visible_boards, rows = _rows_of_team(session, place, team_id)
    return page(
        request,
        "team_on_board.html",
        place=place,
        tab="leaderboard",
        rows=rows,
        boards=visible_boards,
        team=next(iter(rows.values())).entry,
        is_own=place.team is not None and place.team.id == team_id,
        has_history=len(boards.scores_over_time(session, place.competition, [team_id])) > 1,
    )


def _rows_of_team(
    session: Session, place: Place, team_id: str
) -> tuple[dict[Visibility, Board], dict[Visibility, Row]]:
    competition, organiser = place.competition, place.is_organiser
    visible = [Visibility.PUBLIC]
    if gate.may_see_private(competition, organiser=organiser):
        visible.append(Visibility.PRIVATE)
    visible_boards = {one: boards.board_for(session, competition, one, organiser=organiser) for one in visible}
    rows = {one: row for one, board in visible_boards.items() if (row := board.get_row(team_id))}
    if not rows:
        raise NotFound(f"{competition.slug} has no team {team_id!r} on its leaderboard")
    return visible_boards, rows


@router.get("/competitions/{slug}/leaderboard/figures/team.json")
def team_figure(session: SessionDep, place: PlaceDep, team: str) -> Response:
    """Send a team's public scores over time; of the reader's own submissions with names and intervals."""
    own = _scored_of_team(session, place) if place.team and place.team.id == team else []
    rows: list[dict[str, Any]] = [
        {
            "at": view.submission.received_at.isoformat(),
            "name": view.submission.message or view.submission.filename,
            "score": view.score.final_score,
            "low": view.score.interval_low,
            "high": view.score.interval_high,
        }
        for view in own
        if view.score
    ]
    if not rows:
        _rows_of_team(session, place, team)
        scores = boards.scores_over_time(session, place.competition, [team])
        rows = [
            {"at": at.isoformat(), "name": "score", "score": score, "low": None, "high": None}
            for _, at, score in scores
        ]
    split = competitions.find_split(session, place.competition, Visibility.PUBLIC)
    rows.sort(key=lambda row: row["at"])
    return figure(vega_charts.scores_of_team(rows, oracle=gate.get_oracle_score(split)))


@router.get("/competitions/{slug}/leaderboard/charts")
def charts_page(request: Request, session: SessionDep, place: PlaceDep) -> Response:
    scored = _scored_of_team(session, place)
    best = max(scored, key=lambda view: view.score.final_score if view.score else 0.0, default=None)
    split = competitions.find_split(session, place.competition, Visibility.PUBLIC)
    return page(
        request,
        "charts.html",
        place=place,
        tab="charts",
        may_see_private=gate.may_see_private(place.competition, organiser=place.is_organiser),
        has_costs=any(view.score and view.score.run_time_s for view in scored),
        breakdown=find_breakdown(
            best, split, n_models=place.file.n_models, explanation=find_explanation(session, best, split)
        )
        if best and split
        else None,
        best_id=best.submission.id if best else "",
        best_name=best.submission.message or best.submission.filename if best else "",
    )


def _scored_of_team(session: Session, place: Place) -> list[SubmissionView]:
    """Return the newest of the reader's own submissions that have a score; none on a ladder, which hides scores."""
    if place.team is None or gate.shows_ladder(place.competition, Visibility.PUBLIC):
        return []
    scored = submissions.page_of_team(
        session, place.competition, place.team, show=Show.NEWEST, final_ids=(), offset=0, limit=LINES
    )
    return [view for view in submission_views.view(session, scored, ended_in_full=False) if view.score]


@router.get("/competitions/{slug}/leaderboard/figures/cost.json")
def cost_figure(session: SessionDep, place: PlaceDep) -> Response:
    """Send the score and the time of a run of the reader's own submissions."""
    rows = [
        {
            "name": view.submission.message or view.submission.filename,
            "seconds": view.score.run_time_s,
            "score": view.score.final_score,
        }
        for view in _scored_of_team(session, place)
        if view.score and view.score.run_time_s
    ]
    split = competitions.find_split(session, place.competition, Visibility.PUBLIC)
    return figure(vega_charts.score_against_cost(rows, oracle=gate.get_oracle_score(split)))


@router.get("/competitions/{slug}/leaderboard/figures/scores.json")
def scores_figure(session: SessionDep, place: PlaceDep) -> Response:
    """Send the best scores over time of the first teams, and of the reader's own."""
    shown = boards.board_for(session, place.competition, Visibility.PUBLIC, organiser=place.is_organiser)
    names = {row.entry.team_id: row.entry.team for row in shown.rows if row.rank and row.rank <= CHARTED_TEAMS}
    names = dict(list(names.items())[:CHARTED_TEAMS])
    if place.team and shown.get_row(place.team.id):
        names[place.team.id] = place.team.name
    best: dict[str, float] = {}
    rows: list[dict[str, Any]] = []
    for team_id, at, score in boards.scores_over_time(session, place.competition, list(names)):
        if score > best.get(team_id, -1.0):
            best[team_id] = score
            rows.append({"at": at.isoformat(), "team": names[team_id], "score": score})
    until = min(now(), place.competition.closes_at).isoformat()
    rows += [{"at": until, "team": names[team_id], "score": score} for team_id, score in best.items()]
    own = place.team.name if place.team and place.team.id in names else None
    entry = next((row.entry for row in shown.rows if row.entry.kind is RowKind.BASELINE), None)
    baseline = (entry.team, entry.score) if entry and entry.score is not None else None
    teams = list(names.values())
    return figure(vega_charts.score_over_time(rows, teams=teams, own=own, oracle=shown.oracle, baseline=baseline))


@router.get("/competitions/{slug}/leaderboard/figures/shake-up.json")
def shake_up_figure(session: SessionDep, place: PlaceDep) -> Response:
    """Send the public and the private rank of the first teams, and of the reader's own. Sealed until the reveal."""
    private = boards.board_for(session, place.competition, Visibility.PRIVATE, organiser=place.is_organiser)
    moves = boards.shake_up(session, place.competition, private.rows, organiser=place.is_organiser)
    own_id = place.team.id if place.team else None
    rows = [
        {"team": row.entry.team, "board": board, "rank": rank, "own": "yes" if row.entry.team_id == own_id else "no"}
        for row in private.rows
        if row.rank and row.entry.team_id in moves and (row.rank <= SLOPED_TEAMS or row.entry.team_id == own_id)
        for board, rank in (("public", row.rank + moves[row.entry.team_id]), ("private", row.rank))
    ]
    return figure(vega_charts.slope(rows))


def _own(place: Place, board: Board, *, phase: str) -> dict[str, Any]:
    """Return the reader's own line, and the address of the page that holds it."""
    row = board.get_row(place.team.id) if place.team else None
    if row is None or place.team is None:
        return {"own": None, "own_url": ""}
    number = leaderboard_view.page_with_team(board, place.team.id)
    which = "board=private&" if board.visibility is Visibility.PRIVATE else f"phase={phase}&" if phase else ""
    anchor = f"#team-{place.team.id}"
    return {"own": row, "own_url": anchor if number == 1 else f"?{which}page={number}{anchor}"}
