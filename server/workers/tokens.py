"""Worker tokens: what an organiser's own machine runs shards with. One competition, shown once, revocable."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from lethe.errors import NotFound
from server import audit
from server.accounts.passwords import digest, new_token
from server.db import now
from server.errors import Conflict, NotAllowed
from server.evaluations import leases
from server.models.account import Account, Role
from server.models.competition import Competition
from server.models.worker import WorkerToken
from server.workers import worker_repository

PREFIX = "lethe_worker_"
MAX_TOKENS = 50
USE_IS_NOTED_EVERY = timedelta(minutes=1)
of_competition = worker_repository.get_tokens
still_holds = worker_repository.still_holds


@dataclass(frozen=True)
class IssuedWorkerToken:
    """A token at the only time when it can be read."""

    row: WorkerToken
    token: str


def issue(
    session: Session,
    competition: Competition,
    *,
    name: str,
    valid_for: timedelta,
    public_only: bool,
    trusted: bool = False,
    actor: Account,
) -> IssuedWorkerToken:
    """Make a token for the competition's shards. Raises Conflict for too many, NotAllowed if trusted by others."""
    if trusted and actor.role != Role.ADMINISTRATOR:
        raise NotAllowed("Only an administrator may vouch for a machine (trusted)")
    if len(of_competition(session, competition)) >= MAX_TOKENS:
        raise Conflict(f"A competition has at most {MAX_TOKENS} worker tokens; revoke one first")
    token = new_token(PREFIX)
    row = WorkerToken(
        competition_id=competition.id,
        name=name,
        token_hash=digest(token),
        public_only=public_only,
        trusted=trusted,
        created_by=actor.id,
        expires_at=now() + valid_for,
    )
    session.add(row)
    session.flush()
    data = {"name": name, "public_only": public_only, "trusted": trusted, "expires_at": row.expires_at.isoformat()}
    audit.record(session, actor, "worker_token.issued", competition=competition, subject=row.id, data=data)
    return IssuedWorkerToken(row, token)


def revoke(session: Session, competition: Competition, token_id: str, *, actor: Account) -> int:
    """Refuse the token and give its workers' shards to others. Return how many. Raises NotFound."""
    row = worker_repository.locked_token(session, competition.id, token_id)
    if row is None:
        raise NotFound(f"{competition.slug} has no worker token {token_id!r}")
    if row.revoked_at is not None:
        return 0
    row.revoked_at = now()
    freed = leases.take_from(session, worker_repository.worker_names(session, token_id), reason="its token was revoked")
    audit.record(session, actor, "worker_token.revoked", row, data={"name": row.name, "shards_given_back": freed})
    return freed


def find(session: Session, token: str) -> WorkerToken | None:
    """Return the row of a token that is valid now, with its competition; None for any other text."""
    if not token.startswith(PREFIX):
        return None
    row = worker_repository.token_by_hash(session, digest(token))
    if (
        row is None
        or row.revoked_at is not None
        or row.quarantined_at is not None
        or row.creator.disabled_at is not None
    ):
        return None
    return None if row.expires_at <= now() else row


def use_is_due(row: WorkerToken, at: datetime) -> bool:
    """Return whether the use is worth a write: `last_seen_at` is right to a minute."""
    return row.last_seen_at is None or at - row.last_seen_at > USE_IS_NOTED_EVERY


def note_use(session: Session, token_id: str) -> None:
    worker_repository.note_use(session, token_id, now())
