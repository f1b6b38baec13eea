"""SQL of workers and of the splits that they may serve."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from server.db import moment
from server.models.competition import Competition, Split, SplitState
from server.models.worker import Worker


@dataclass(frozen=True)
class ReadySplit:
    """What a split asks of the worker that serves it."""

    split_id: str
    slug: str
    visibility: str
    device: str | None
    versions: dict[str, Any]
    memory_mib: int


def ready_splits(session: Session, competitions: Sequence[str] | None) -> list[ReadySplit]:
    """Return the prepared splits, of the competitions with these slugs if any are given."""
    statement = (
        select(
            Split.id,
            Competition.slug,
            Split.visibility,
            Split.device,
            Split.versions,
            Competition.config["limits"]["memory_mib"].as_integer(),
        )
        .join(Competition, Competition.id == Split.competition_id)
        .where(Split.state == SplitState.READY.value)
    )
    if competitions is not None:
        statement = statement.where(Competition.slug.in_(competitions))
    return [ReadySplit(*row) for row in session.execute(statement)]


def worker(session: Session, name: str) -> Worker | None:
    return session.get(Worker, name)


def workers_of(session: Session, *, seen_within_s: float) -> Sequence[Worker]:
    """Return the workers heard of lately, by name."""
    statement = select(Worker).where(Worker.seen_at > moment(-seen_within_s)).order_by(Worker.name)
    return session.scalars(statement).all()


def forget_silent(session: Session, *, after_s: float) -> None:
    """Remove workers that nothing was heard of for so long: process ids are not used again for a name."""
    session.execute(delete(Worker).where(Worker.seen_at < moment(-after_s)))
