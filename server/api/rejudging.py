"""/api/v1/competitions/{slug}/rejudgings: scoring a set again, previewed, applied or discarded. For organisers."""

from datetime import datetime
from typing import Any

from fastapi import status
from pydantic import Field

from lethe.competition.section import Timestamp
from lethe.competition.visibility import Visibility
from server.accounts import accounts
from server.api.admin.schemas import Why, WhyBody
from server.api.auth_dependencies import CurrentAccount, organiser_routes
from server.api.auth_dependencies import OrganisedCompetition as Organised
from server.api.schema import In, Out
from server.deps import SessionDep
from server.models.evaluation import Rejudging
from server.problem_details import problems
from server.rejudging import rejudgings
from server.rejudging.progress import RejudgingProgress, get_progress
from server.rejudging.rejudgings import Changed, Preview, TeamChange
from server.rejudging.sets import Chosen, Outcome


class NewScoring(In):
    """How outputs become a score, where it is to differ; what is not named stays."""

    attacks: str | None = Field(
        default=None, description="crossfit, reference, exact or disentangled", examples=["crossfit"]
    )
    delta: float | None = Field(default=None, gt=0, lt=1)
    epsilon_cap: float | None = Field(default=None, gt=0)


class NewRejudging(In):
    """Which submissions are scored again, on which split, what changed, and why."""

    split: Visibility = Visibility.PUBLIC
    changed: Changed = Field(
        description="what changed: the scorer (stored outputs are scored again), the limits, a repaired split, the host"
    )
    reason: Why
    scoring: NewScoring | None = Field(
        default=None, description="try another scoring on all submissions; applied, it is the competition's"
    )
    submissions: list[str] | None = Field(
        default=None, max_length=10_000, description="ids; their first characters are enough"
    )
    team_id: str | None = None
    error_class: str | None = None
    received_from: Timestamp | None = None
    received_before: Timestamp | None = None


class RejudgingOut(Out):
    """A re-judging."""

    id: str
    visibility: str
    state: str = Field(description="running, applied or discarded")
    changed: str
    reason: str
    chosen: dict[str, Any]
    scoring: dict[str, Any] | None = Field(description="the scoring that it tries; null: the competition's")
    created_at: datetime
    ended_at: datetime | None


class RejudgingStatus(RejudgingOut):
    """A re-judging and how far it is."""

    author: str
    complete: bool
    evaluations: dict[str, int] = Field(description="evaluations in each state", examples=[{"scored": 3, "queued": 1}])
    runs_done: int
    runs: int

    @classmethod
    def with_progress(cls, row: Rejudging, *, author: str, progress: RejudgingProgress) -> "RejudgingStatus":
        return cls.read(
            row,
            author=author,
            complete=progress.is_complete,
            evaluations=progress.states,
            runs_done=progress.runs_done,
            runs=progress.runs,
        )


class RejudgingPreview(RejudgingOut):
    """A re-judging, how far it is, and what applying would change."""

    complete: bool
    submissions: list[Outcome]
    teams: list[TeamChange] = Field(description="only those whose rank or score would change")

    @classmethod
    def whole(cls, preview: Preview) -> "RejudgingPreview":
        return cls.read(
            preview.rejudging, complete=preview.is_complete, submissions=preview.outcomes, teams=preview.teams
        )


router = organiser_routes("/rejudgings")


@router.get("")
def list_rejudgings(session: SessionDep, competition: Organised) -> list[RejudgingOut]:
    """List the re-judgings, the newest first."""
    return [RejudgingOut.read(row) for row in rejudgings.of_competition(session, competition)]


@router.post("", status_code=status.HTTP_201_CREATED, responses=problems(409))
def start_rejudging(
    body: NewRejudging, session: SessionDep, competition: Organised, account: CurrentAccount
) -> RejudgingOut:
    """Score a set of submissions again, beside the live results."""
    chosen = Chosen(
        submission_ids=tuple(body.submissions) if body.submissions is not None else None,
        team_id=body.team_id,
        error_class=body.error_class,
        received_from=body.received_from,
        received_before=body.received_before,
    )
    row = rejudgings.start(
        session,
        competition,
        visibility=body.split,
        chosen=chosen,
        changed=body.changed,
        actor=account,
        reason=body.reason,
        scoring=body.scoring.model_dump(exclude_none=True) if body.scoring else None,
    )
    return RejudgingOut.read(row)


@router.get("/{rejudging_id}")
def show_rejudging(rejudging_id: str, session: SessionDep, competition: Organised) -> RejudgingStatus:
    """Show a re-judging: who started it, how many evaluations are in each state, how many runs are done."""
    row = rejudgings.get(session, competition, rejudging_id)
    author = accounts.names(session, [row.created_by]).get(row.created_by, "")
    return RejudgingStatus.with_progress(row, author=author, progress=get_progress(session, row))


@router.post("/{rejudging_id}/preview")
def preview_rejudging(rejudging_id: str, session: SessionDep, competition: Organised) -> RejudgingPreview:
    """Show how far a re-judging is, and whose score and rank it would change. Nothing is changed by asking."""
    row = rejudgings.get(session, competition, rejudging_id)
    return RejudgingPreview.whole(rejudgings.preview(session, competition, row))


@router.post("/{rejudging_id}/apply", responses=problems(409))
def apply_rejudging(
    rejudging_id: str, session: SessionDep, competition: Organised, account: CurrentAccount
) -> RejudgingOut:
    """Apply the new scores, all at once."""
    row = rejudgings.get(session, competition, rejudging_id)
    return RejudgingOut.read(rejudgings.apply(session, competition, row, actor=account))


@router.post("/{rejudging_id}/discard", responses=problems(409))
def discard_rejudging(
    rejudging_id: str, body: WhyBody, session: SessionDep, competition: Organised, account: CurrentAccount
) -> RejudgingOut:
    """Stop a re-judging. Everything stays as it was."""
    row = rejudgings.get(session, competition, rejudging_id)
    return RejudgingOut.read(rejudgings.discard(session, row, actor=account, reason=body.reason))
