"""/api/v1/competitions/{slug}/rejudgings: scoring a set again, previewed, applied or discarded. For organisers."""

from fastapi import status

from server.accounts import service as accounts
from server.api.admin.schemas import WhyBody
from server.api.auth_dependencies import CurrentAccount, organiser_routes
from server.api.auth_dependencies import OrganisedCompetition as Organised
from server.api.rejudging.schemas import NewRejudging, RejudgingOut, RejudgingPreview, RejudgingStatus
from server.deps import SessionDep
from server.problem_details import problems
from server.rejudging import service
from server.rejudging.progress import get_progress
from server.rejudging.sets import Chosen

router = organiser_routes("/rejudgings")


@router.get("")
def list_rejudgings(session: SessionDep, competition: Organised) -> list[RejudgingOut]:
    """List the re-judgings, the newest first."""
    return [RejudgingOut.read(row) for row in service.of_competition(session, competition)]


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
    row = service.start(
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
    row = service.get(session, competition, rejudging_id)
    author = accounts.names(session, [row.created_by]).get(row.created_by, "")
    return RejudgingStatus.with_progress(row, author=author, progress=get_progress(session, row))


@router.post("/{rejudging_id}/preview")
def preview_rejudging(rejudging_id: str, session: SessionDep, competition: Organised) -> RejudgingPreview:
    """Show how far a re-judging is, and whose score and rank it would change. Nothing is changed by asking."""
    row = service.get(session, competition, rejudging_id)
    return RejudgingPreview.whole(service.preview(session, competition, row))


@router.post("/{rejudging_id}/apply", responses=problems(409))
def apply_rejudging(
    rejudging_id: str, session: SessionDep, competition: Organised, account: CurrentAccount
) -> RejudgingOut:
    """Apply the new scores, all at once."""
    row = service.get(session, competition, rejudging_id)
    return RejudgingOut.read(service.apply(session, competition, row, actor=account))


@router.post("/{rejudging_id}/discard", responses=problems(409))
def discard_rejudging(
    rejudging_id: str, body: WhyBody, session: SessionDep, competition: Organised, account: CurrentAccount
) -> RejudgingOut:
    """Stop a re-judging. Everything stays as it was."""
    row = service.get(session, competition, rejudging_id)
    return RejudgingOut.read(service.discard(session, row, actor=account, reason=body.reason))
