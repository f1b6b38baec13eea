"""/api/v1/competitions/{slug}/worker-tokens: which machines may run a competition's shards; which worker is calling."""

from datetime import timedelta
from typing import Annotated

from fastapi import BackgroundTasks, Depends, status
from fastapi.security import HTTPAuthorizationCredentials
from sqlalchemy.orm import Session

from server.admission import Admission, AdmissionDep
from server.api.auth_dependencies import Credentials, CurrentAccount, organiser_routes
from server.api.auth_dependencies import OrganisedCompetition as Organised
from server.api.workers.schemas import AttachedWorkerOut, IssuedWorkerTokenOut, NewWorkerToken, WorkerTokenOut
from server.db import Database, now
from server.deps import DatabaseDep, SessionDep, UnadmittedDatabase
from server.errors import NotAuthenticated
from server.models.worker import WorkerToken
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


def identify(session: Session, credentials: HTTPAuthorizationCredentials | None) -> WorkerToken:
    """Return the valid worker token that came with a request. Raises NotAuthenticated."""
    row = tokens.find(session, credentials.credentials) if credentials else None
    if row is None:
        raise NotAuthenticated(
            f"This needs a worker token ({tokens.PREFIX}...) that is neither revoked, quarantined nor expired"
        )
    return row


def current_token(
    session: SessionDep,
    credentials: Credentials,
    background: BackgroundTasks,
    *,
    database: DatabaseDep,
    admission: AdmissionDep,
) -> WorkerToken:
    """Return the caller's token. Raises NotAuthenticated."""
    row = identify(session, credentials)
    note_use_later(background, admission, database, row)
    return row


def require_token(database: DatabaseDep, credentials: Credentials) -> None:
    """Turn others away, at once, from a route that opens sessions by itself. Raises NotAuthenticated."""
    with database.read() as session:
        identify(session, credentials)


async def require_token_briefly(
    admission: AdmissionDep, database: UnadmittedDatabase, credentials: Credentials
) -> None:
    """Do the same for a route whose body is long, in a turn that ends before the body is read."""
    await admission.read(database, identify, credentials)


CurrentToken = Annotated[WorkerToken, Depends(current_token)]


def note_use_later(background: BackgroundTasks, admission: Admission, database: Database, row: WorkerToken) -> None:
    """Remember, after the answer has left, that a token was used."""
    if tokens.use_is_due(row, now()):
        background.add_task(admission.write, database, tokens.note_use, row.id)
