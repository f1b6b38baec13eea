"""SQL of workers and of the splits that they may serve."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session, joinedload

from lethe.competition.visibility import Visibility
from server.db import database_time
from server.models.competition import Competition, Split, SplitState
from server.models.evaluation import Shard
from server.models.worker import Worker, WorkerToken


@dataclass(frozen=True)
class ReadySplit:
    """What a split asks of the worker that serves it."""

    split_id: str
    slug: str
    visibility: str
    device: str | None
    versions: dict[str, Any]
    memory_mib: int
    isolation: str | None = None


def ready_splits(
    session: Session, competitions: Sequence[str] | None, *, public_only: bool = False
) -> list[ReadySplit]:
    """Return the prepared splits, of the competitions with these slugs if any are given."""
    statement = (
        select(
            Split.id,
            Competition.slug,
            Split.visibility,
            Split.device,
            Split.versions,
            Competition.config["limits"]["memory_mib"].as_integer(),
            Competition.config["limits"]["isolation"].as_string(),
        )
        .join(Competition, Competition.id == Split.competition_id)
        .where(Split.state == SplitState.READY.value)
    )
    if competitions is not None:
        statement = statement.where(Competition.slug.in_(competitions))
    if public_only:
        statement = statement.where(Split.visibility == Visibility.PUBLIC.value)
    return [ReadySplit(*row) for row in session.execute(statement)]


def n_forget_of_shard(session: Session, shard_id: int) -> int:
    found = select(Split.n_forget).join(Shard, Shard.split_id == Split.id).where(Shard.id == shard_id)
    return session.scalars(found).one() or 0


def worker(session: Session, name: str) -> Worker | None:
    return session.get(Worker, name)


def forget_silent(session: Session, *, after_s: float) -> None:
    """Remove workers that nothing was heard of for so long: process ids are not used again for a name."""
    session.execute(delete(Worker).where(Worker.seen_at < database_time(-after_s)))


def worker_names(session: Session, token_id: str) -> Sequence[str]:
    """Return the names of the workers that came with a token."""
    return session.scalars(select(Worker.name).where(Worker.token_id == token_id)).all()


def count_workers(session: Session, token_id: str) -> int:
    return session.scalars(select(func.count()).select_from(Worker).where(Worker.token_id == token_id)).one()


def workers_with(session: Session, token_ids: Sequence[str]) -> Sequence[Worker]:
    """Return the workers that came with any of these tokens, the last heard of first."""
    mine = select(Worker).where(Worker.token_id.in_(token_ids))
    return session.scalars(mine.order_by(Worker.seen_at.desc(), Worker.name)).all()


def get_tokens(session: Session, competition_id: str) -> Sequence[WorkerToken]:
    mine = WorkerToken.competition_id == competition_id, WorkerToken.revoked_at.is_(None)
    return session.scalars(select(WorkerToken).where(*mine).order_by(WorkerToken.created_at.desc())).all()


def token_by_hash(session: Session, token_hash: str) -> WorkerToken | None:
    """Return the token with its competition and the account that made it."""
    return session.scalar(
        select(WorkerToken)
        .where(WorkerToken.token_hash == token_hash)
        .options(joinedload(WorkerToken.competition), joinedload(WorkerToken.creator))
    )


def locked_token(session: Session, competition_id: str, token_id: str) -> WorkerToken | None:
    """Return a token of the competition, held for a change until the transaction ends."""
    mine = WorkerToken.id == token_id, WorkerToken.competition_id == competition_id
    return session.scalar(select(WorkerToken).where(*mine).with_for_update())


def hold_token(session: Session, token_id: str) -> bool:
    """Return whether the token is not revoked, and let nobody change that before the transaction ends."""
    valid = select(WorkerToken.id).where(WorkerToken.id == token_id, WorkerToken.revoked_at.is_(None))
    return session.scalar(valid.with_for_update(read=True)) is not None


def note_use(session: Session, token_id: str, at: datetime) -> None:
    session.execute(update(WorkerToken).where(WorkerToken.id == token_id).values(last_seen_at=at))
