"""When the instance's upkeep was last done: what is due without anybody noticing is seen by its age alone."""

from enum import StrEnum

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from server.db import clock, database_time
from server.models.account import LastTime


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
