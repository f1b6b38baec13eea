"""/api/v1/competitions/{slug}/leaderboard: the boards."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from lethe.competition.visibility import Visibility
from lethe.metrics.scoring.attacks.family import few_models_warnings, smallest_detectable_shift
from server.api.auth_dependencies import OptionalAccount, VisibleCompetition
from server.api.schema import Out
from server.competitions import competitions
from server.competitions.stored_file import stored_file
from server.deps import SessionDep
from server.disclosure import gate
from server.disclosure.gate import ShownNumber
from server.leaderboard import boards
from server.leaderboard.ranking import BoardColumn, Column, ColumnValue, Row, RowKind, board_row
from server.middleware import PROXY_CACHE
from server.problem_details import problems


class LeaderboardRow(Out):
    """One line. References (baseline, oracle), unconfirmed scores and disqualified teams have no rank."""

    rank: int | None
    kind: RowKind = Field(description="unconfirmed: it takes no rank until an organiser confirms it")
    team_id: str | None = Field(description="null for the oracle, which is not a team")
    team: str
    score: ShownNumber
    share_of_oracle: ShownNumber | None = Field(description="score divided by the exact-retraining oracle's")
    interval_low: ShownNumber | None = None
    interval_high: ShownNumber | None = None
    tied_group: int | None = Field(
        default=None, description="the intervals show no difference between teams of one group"
    )
    entries: int
    last_entry_at: datetime | None
    mode: str = Field(default="function", description="notebook: run once as it is, its runs not independent")
    metrics: dict[str, ColumnValue] = Field(default={}, description="by the id of a column; no entry: not computed")

    @classmethod
    def of(cls, row: Row, columns: Sequence[BoardColumn] = ()) -> "LeaderboardRow":
        return cls.model_validate(board_row(row, columns) | {"score": row.entry.score or gate.NO_SCORE})


class LeaderboardPage(BaseModel):
    """Some lines of a board, and how many there are."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "competition": "digits",
                "board": "public",
                "oracle": {"score": 0.9902},
                "n_models": 512,
                "smallest_detectable_shift": 0.175,
                "scale": "Exact retraining scores about 1",
                "warnings": [],
                "teams": 1,
                "total": 2,
                "offset": 0,
                "rows": [
                    {
                        "rank": None,
                        "kind": "oracle",
                        "team_id": None,
                        "team": "Exact retraining",
                        "score": 0.9902,
                        "share_of_oracle": 1.0,
                        "entries": 0,
                        "last_entry_at": None,
                    },
                    {
                        "rank": 1,
                        "kind": "team",
                        "team_id": "4f0c2f6f8a0e1d2b",
                        "team": "ada",
                        "score": 0.2272,
                        "share_of_oracle": 0.2294,
                        "entries": 3,
                        "last_entry_at": "2026-03-01T12:00:00Z",
                    },
                ],
            }
        }
    )

    as_of: datetime | None = Field(
        default=None,
        description="while the database does not answer: when this was shown last; what came later is missing",
    )
    competition: str
    board: Visibility
    phase: str = Field(default="", description="whose submissions alone are on it; empty: the official board")
    scores_verified: bool = Field(
        default=True, description="false: they came with an archive whose key nobody vouched for"
    )
    oracle: "OracleScore | None"
    n_models: int = Field(description="N: runs behind every score; scores of another N are not on the board")
    smallest_detectable_shift: float = Field(
        description="of one example's confidences, in standard deviations of one model, that N models a side detect"
    )
    scale: str = Field(
        default="",
        description="how scores are to be read; as in 2023: by attacks that an entry can win without unlearning",
        examples=["Exact retraining scores about 1"],
    )
    warnings: list[str] = Field(description="where N is so small that shares of the oracle are flattering")
    teams: int = Field(description="ranked teams on the whole board")
    total: int = Field(description="lines that match, references included")
    offset: int
    columns: list[Column] = Field(default=[], description="metrics that the organiser shows beside the score")
    rows: list[LeaderboardRow]


class OracleScore(BaseModel):
    """What exact retraining scores here: the mark that a perfect unlearner reaches on average. About 1 by crossfit
    attacks, about a fifth of it by those of 2023."""

    score: ShownNumber


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
    shown = boards.board(session, competition, board, viewer=account, phase=phase)
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
        columns=list(shown.columns),
        rows=[LeaderboardRow.of(row, shown.columns) for row in rows[offset : offset + limit]],
    )
