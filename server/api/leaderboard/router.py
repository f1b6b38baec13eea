"""/api/v1/competitions/{slug}/leaderboard: the boards."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from lethe.competition.visibility import Visibility
from lethe.metrics.scoring.sample_size import few_models_warnings, smallest_detectable_shift
from server.api.auth_dependencies import OptionalAccount, VisibleCompetition
from server.api.leaderboard.schemas import ColumnOut, LeaderboardPage, LeaderboardRow, OracleScore
from server.competitions import service as competitions
from server.competitions.stored_file import stored_file
from server.deps import SessionDep
from server.leaderboard import service
from server.middleware import PROXY_CACHE
from server.problem_details import problems

router = APIRouter(prefix="/competitions", tags=["leaderboard"])

MAX_ROWS = 1000


@router.get("/{slug}/leaderboard", responses=problems(401, 404))
def show_leaderboard(
    session: SessionDep,
    competition: VisibleCompetition,
    account: OptionalAccount,
    response: Response,
    *,
    board: Annotated[Visibility, Query(description="private: sealed until the reveal")] = Visibility.PUBLIC,
    phase: Annotated[
        str,
        Query(max_length=40, description="a phase's own leaderboard; late: after the close; empty: the official one"),
    ] = "",
    task: Annotated[str, Query(max_length=40, description="name of a task; empty: all of them combined")] = "",
    q: Annotated[str, Query(max_length=60, description="part of a team's name")] = "",
    offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_ROWS)] = MAX_ROWS,
) -> LeaderboardPage:
    """Show a leaderboard: best score of each team first, equal scores share a rank, beside the exact-retraining
    oracle. The organiser's baselines and the oracle are references without a rank. Nor has an unconfirmed score a rank:
    others are ranked as if it were not there. Where a competition has tasks, the score is the combination of theirs,
    which stand in the columns."""
    if task:
        competition = competitions.get_task(session, competition, task)
    shown = service.board(session, competition, board, viewer=account, phase=phase)
    rows = shown.matching(q)
    if account is None:
        response.headers.update(PROXY_CACHE)
    return LeaderboardPage(
        competition=competition.slug,
        board=board,
        phase=phase,
        scores_verified=competition.scores_verified,
        oracle=OracleScore(score=shown.oracle) if shown.oracle is not None else None,
        n_models=shown.n_models,
        smallest_detectable_shift=smallest_detectable_shift(shown.n_models),
        scale=stored_file(competition).scale_in_words,
        warnings=few_models_warnings(shown.n_models),
        teams=shown.teams,
        total=len(rows),
        offset=offset,
        columns=[ColumnOut.read(column) for column in shown.columns],
        rows=[LeaderboardRow.of(row, shown.columns) for row in rows[offset : offset + limit]],
    )
