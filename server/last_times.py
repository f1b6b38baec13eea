"""When the instance's upkeep was last done: what is due without anybody noticing is seen by its age alone."""

from datetime import datetime
from enum import StrEnum

from sqlalchemy import String, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Mapped, Session, mapped_column

from server.db import Base, clock, database_time


class LastTime(Base):
    __tablename__ = "last_times"

    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    at: Mapped[datetime] = mapped_column(default=database_time())


class Upkeep(StrEnum):
    SWEEP = "sweep"  # the search for lost work, by any worker
    BEAT = "beat"  # the same, woken by the scheduler's process
    BACKUP = "backup"
    VERIFIED_BACKUP = "verified_backup"  # a backup that was restored to an empty database, and found whole
    GARBAGE = "garbage"  # `lethe gc --delete`


def note(session: Session, what: Upkeep) -> None:
    """Note that something was done now. Two may do so at once, also the first time."""
    insert = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
    row = insert(LastTime).values(name=what.value, at=database_time())
    session.execute(row.on_conflict_do_update(index_elements=[LastTime.name], set_={"at": database_time()}))


def ages_s(session: Session) -> dict[str, float]:
    """Return how long ago each was done, seconds; what never was is left out."""
    at = clock(session)
    return {row.name: (at - row.at).total_seconds() for row in session.scalars(select(LastTime))}
