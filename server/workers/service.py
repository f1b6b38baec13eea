"""Worker registration and compatibility checks."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from server.db import database_time
from server.models.competition import Competition
from server.models.worker import Worker, WorkerState
from server.worker_facts import WorkerFacts
from server.workers import repository
from server.workers.compatibility import Fitting

SILENT_AFTER_S = 60.0
REMOVED_AFTER_S = 7 * 24 * 3600.0  # of silence: the list of workers shows it no longer


def report(
    session: Session,
    facts: WorkerFacts,
    fit: Fitting,
    *,
    state: WorkerState = WorkerState.ACTIVE,
    detail: str = "",
    token_id: str | None = None,
) -> None:
    """Store what a worker says of itself and which splits refuse it.

    detail: why it is in a state that takes nothing. token_id: what it came with, if it is remote.
    """
    row = session.get(Worker, facts.name)
    if row is None:
        repository.forget_silent(session, after_s=REMOVED_AFTER_S)
        row = Worker(name=facts.name, token_id=token_id)
        session.add(row)
    row.state, row.detail = state.value, detail
    row.device = facts.device
    row.memory_mib = facts.memory_mib
    row.versions = facts.versions
    row.refusals = fit.refusals
    row.seen_at = database_time()  # an SQL expression, taken at flush


def note_silent(session: Session) -> int:
    """Show as stopped the workers that were killed or cut off: they neither report nor hold a shard. Return how many.

    One that is heard of again says itself what it is.
    """
    return repository.stop_silent(session, after_s=SILENT_AFTER_S)


def note_seen(session: Session, name: str) -> None:
    """Store that a worker lives which has reported before."""
    row = session.get(Worker, name)
    if row is not None:
        row.seen_at = database_time()


def attached(session: Session, competition: Competition) -> Sequence[Worker]:
    """Return the workers that came with a worker token of the competition that is not revoked."""
    return repository.workers_with(session, [row.id for row in repository.get_tokens(session, competition)])
