"""Which worker is calling: by a worker token, which is good for nothing else."""

from typing import Annotated

from fastapi import BackgroundTasks, Depends
from fastapi.security import HTTPAuthorizationCredentials
from sqlalchemy.orm import Session

from server.accounts.access import Credentials, DatabaseDep
from server.db import Database, now
from server.deps import SessionDep
from server.errors import NotAuthenticated
from server.models.worker import WorkerToken
from server.workers import tokens


def identify(session: Session, credentials: HTTPAuthorizationCredentials | None) -> WorkerToken:
    """Return the valid worker token that came with a request. Raises NotAuthenticated."""
    row = tokens.find(session, credentials.credentials) if credentials else None
    if row is None:
        raise NotAuthenticated(f"This needs a worker token ({tokens.PREFIX}...) that is neither revoked nor expired")
    return row


def current_token(
    session: SessionDep, credentials: Credentials, background: BackgroundTasks, database: DatabaseDep
) -> WorkerToken:
    """Return the caller's token. Raises NotAuthenticated."""
    row = identify(session, credentials)
    note_use_later(background, database, row)
    return row


def require_token(database: DatabaseDep, credentials: Credentials) -> None:
    """Turn others away, at once, from a route that opens sessions by itself. Raises NotAuthenticated."""
    with database.read() as session:
        identify(session, credentials)


CurrentToken = Annotated[WorkerToken, Depends(current_token)]


def note_use_later(background: BackgroundTasks, database: Database, row: WorkerToken) -> None:
    """Remember, after the answer has left, that a token was used."""
    if tokens.use_is_due(row, now()):
        background.add_task(_note_use, database, row.id)


def _note_use(database: Database, token_id: str) -> None:
    with database.write() as session:
        tokens.note_use(session, token_id)
