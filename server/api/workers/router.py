"""/api/v1/competitions/{slug}/worker-tokens: which machines of an organiser's own may run a competition's shards."""

from datetime import timedelta

from fastapi import status

from server.api.auth_dependencies import CurrentAccount, organiser_routes
from server.api.auth_dependencies import OrganisedCompetition as Organised
from server.api.workers.schemas import AttachedWorkerOut, IssuedWorkerTokenOut, NewWorkerToken, WorkerTokenOut
from server.deps import SessionDep
from server.problem_details import problems
from server.workers import registration, tokens

router = organiser_routes()


@router.get("/worker-tokens")
def list_worker_tokens(session: SessionDep, competition: Organised) -> list[WorkerTokenOut]:
    """List the worker tokens that are not revoked."""
    return [WorkerTokenOut.model_validate(row) for row in tokens.of_competition(session, competition)]


@router.post("/worker-tokens", status_code=status.HTTP_201_CREATED, responses=problems(409))
def create_worker_token(
    body: NewWorkerToken, session: SessionDep, competition: Organised, account: CurrentAccount
) -> IssuedWorkerTokenOut:
    """Create token with which machines of your own may run this competition's shards. It is shown this once."""
    valid_for = timedelta(days=body.expires_in_days)
    issued = tokens.issue(
        session,
        competition,
        name=body.name,
        valid_for=valid_for,
        public_only=body.public_only,
        trusted=body.trusted,
        actor=account,
    )
    return IssuedWorkerTokenOut.read(issued.row, token=issued.token)


@router.delete("/worker-tokens/{token_id}", status_code=status.HTTP_204_NO_CONTENT)
def revoke_worker_token(token_id: str, session: SessionDep, competition: Organised, account: CurrentAccount) -> None:
    """Revoke a worker token. Shards of its workers return to the queue at once."""
    tokens.revoke(session, competition, token_id, actor=account)


@router.get("/workers")
def list_attached_workers(session: SessionDep, competition: Organised) -> list[AttachedWorkerOut]:
    """List the workers registered with this competition's tokens, latest report first."""
    rows = registration.attached(session, competition)
    return [AttachedWorkerOut.read(row, refusals=list(row.refusals.values())) for row in rows]
