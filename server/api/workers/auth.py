"""Which worker is calling: by a worker token, which is good for nothing else."""

from typing import Annotated

from fastapi import BackgroundTasks, Depends
from fastapi.security import HTTPAuthorizationCredentials
from sqlalchemy.orm import Session

from server.admission import Admission, AdmissionDep
from server.api.auth_dependencies import Credentials
from server.db import Database, now
from server.deps import DatabaseDep, SessionDep, UnadmittedDatabase
from server.errors import NotAuthenticated
from server.models.worker import WorkerToken
from server.workers import tokens


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
