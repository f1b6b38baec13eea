"""Worker tokens, registration, compatibility checks and cordoned hosts.

A worker that does not fit a split is told why: scores are only comparable if every run was made alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from lethe.competition.section import SCHEMA_VERSION
from lethe.errors import InvalidInput, NotFound
from server import audit
from server.accounts.passwords import digest, new_token
from server.competitions.stored_file import unreadable
from server.db import database_time, now
from server.errors import Conflict, NotAllowed
from server.evaluations import leases
from server.models.account import Account, Role
from server.models.competition import Competition
from server.models.worker import (
    CordonedHost,
    Worker,
    WorkerFacts,
    WorkerState,
    WorkerToken,
    host_of,
    libraries_fact,
    minor_version,
)
from server.workers import worker_repository
from server.workers.worker_repository import ReadySplit

TOKEN_PREFIX = "lethe_worker_"  # noqa: S105 (how each begins)
MAX_TOKENS = 50
USE_IS_NOTED_EVERY = timedelta(minutes=1)
of_competition = worker_repository.get_tokens
still_holds = worker_repository.still_holds


@dataclass(frozen=True)
class IssuedWorkerToken:
    """A token at the only time when it can be read."""

    row: WorkerToken
    token: str


def issue_token(
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
    token = new_token(TOKEN_PREFIX)
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


def revoke_token(session: Session, competition: Competition, token_id: str, *, actor: Account) -> int:
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


def find_token(session: Session, token: str) -> WorkerToken | None:
    """Return the row of a token that is valid now, with its competition; None for any other text."""
    if not token.startswith(TOKEN_PREFIX):
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


SERVES_OTHERS = "this worker serves other competitions (LETHE_WORKER_COMPETITIONS)"
SILENT_AFTER_S = 60.0
REMOVED_AFTER_S = 7 * 24 * 3600.0  # of silence: the list of workers shows it no longer
hosts = worker_repository.cordoned_hosts


@dataclass(frozen=True)
class Fitting:
    """The splits that a worker may serve, and why it may not serve the others."""

    splits: tuple[str, ...]
    refusals: dict[str, str] = field(default_factory=dict)


def fitting(
    session: Session,
    facts: WorkerFacts,
    *,
    competitions: Sequence[str] | None = None,
    public_only: bool = False,
    trusted: bool = True,
    says_all: bool = False,
) -> Fitting:
    """Compare a worker with every prepared split (of some competitions). says_all: the others' refuse it."""
    refusals: dict[str, str] = {}
    splits: list[str] = []
    looked_at = None if says_all else competitions
    for split in worker_repository.ready_splits(session, looked_at, public_only=public_only):
        if competitions is not None and split.slug not in competitions:
            refusals[split.split_id] = SERVES_OTHERS
            continue
        reason = _of_another_version(split) or refusal(facts, split)
        if split.trusted_only and not trusted:
            reason = f"{split.slug} takes trusted workers only (trusted_only in its file)"
        if reason is None:
            splits.append(split.split_id)
        else:
            refusals[split.split_id] = reason
    return Fitting(tuple(splits), refusals)


def _of_another_version(split: ReadySplit) -> str | None:
    if (split.schema_version or 0) > SCHEMA_VERSION:
        return f"{split.slug} was made by a newer version of Lethe than this worker's: update the worker"
    return unreadable.get(split.slug)


def refusal(facts: WorkerFacts, split: ReadySplit) -> str | None:
    """Return why the worker may not serve the split, or None if it may."""
    name = f"The {split.visibility} split of {split.slug}"
    if split.device is not None and facts.device != split.device:
        return f"{name} was prepared on {split.device}, this worker computes on {facts.device}: they round differently"
    if facts.memory_mib < split.memory_mib:
        return f"{name} allows a run {split.memory_mib} MiB of memory, this worker has {facts.memory_mib} MiB for one"
    if facts.isolates_runs and facts.device == "cuda" and split.isolation == "shard":
        return f"{name} lets a shard's runs share a process, which this worker's LETHE_SANDBOX_REQUIRED refuses"
    if split.libraries and libraries_fact(split.libraries) not in facts.versions:
        return (
            f"{name} runs code with the libraries of {split.libraries}, which this worker does not have: "
            f"lethe libraries install {split.libraries}"
        )
    prepared, installed = split.versions.get("torch"), facts.versions.get("torch")
    wanted = minor_version(prepared)
    if prepared is not None and wanted != minor_version(installed):
        return f"{name} was prepared with torch {prepared}, this worker has {installed}: install {wanted}"
    return None


def report(
    session: Session,
    facts: WorkerFacts,
    fit: Fitting,
    *,
    state: WorkerState = WorkerState.ACTIVE,
    detail: str = "",
    token_id: str | None = None,
) -> None:
    """Store what a worker says of itself and which splits refuse it. token_id: if it is remote."""
    row = session.get(Worker, facts.name)
    if row is None:
        worker_repository.forget_silent(session, after_s=REMOVED_AFTER_S)
        row = Worker(name=facts.name, token_id=token_id)
        session.add(row)
    row.state, row.detail = state.value, detail
    row.device = facts.device
    row.memory_mib = facts.memory_mib
    row.versions = facts.versions
    row.refusals = fit.refusals
    row.seen_at = database_time()  # an SQL expression, taken at flush


def note_silent(session: Session) -> int:
    """Show as stopped the workers that neither report nor hold a shard. Return how many."""
    return worker_repository.stop_silent(session, after_s=SILENT_AFTER_S)


def note_seen(session: Session, name: str) -> None:
    """Store that a worker lives which has reported before."""
    row = session.get(Worker, name)
    if row is not None:
        row.seen_at = database_time()


def attached(session: Session, competition: Competition) -> Sequence[Worker]:
    """Return the workers that came with a worker token of the competition that is not revoked."""
    return worker_repository.workers_with(
        session, [row.id for row in worker_repository.get_tokens(session, competition)]
    )


def reason(session: Session, worker_name: str) -> str:
    """Return why the worker's host takes no work; empty if it does."""
    cordoned = session.get(CordonedHost, host_of(worker_name), populate_existing=True)
    return f"cordoned: {cordoned.reason}" if cordoned else ""


def cordon(session: Session, host: str, *, why: str, actor: Account | None, drain: bool = False) -> int:
    """Cordon the host: no new work; preparations in progress end. Return the number of shards taken back.

    drain: take back the shards that they hold, too; this is nobody's failed attempt. Raises NotFound for a host that
    no worker came from, InvalidInput without a reason.
    """
    if not why.strip():
        raise InvalidInput("Say why the host is taken out of service: its reason is shown with its workers")
    names = [row.name for row in _workers(session, host)]
    row = session.get(CordonedHost, host) or CordonedHost(host=host)
    row.reason, row.ordered_by = why.strip(), actor.id if actor else None
    session.add(row)
    taken = leases.take_from(session, names, reason=f"{host} is drained: {why}") if drain else 0
    action = "host.drained" if drain else "host.cordoned"
    audit.record(session, actor, action, subject=host, reason=why, data={"host": host, "shards": taken})
    return taken


def uncordon(session: Session, host: str, *, actor: Account | None) -> None:
    """Uncordon the host. Raises NotFound if it is not cordoned."""
    row = session.get(CordonedHost, host)
    if row is None:
        raise NotFound(f"{host!r} is not cordoned")
    session.delete(row)
    audit.record(session, actor, "host.uncordoned", subject=host, data={"host": host})


def _workers(session: Session, host: str) -> Sequence[Worker]:
    known = worker_repository.own_workers(session)
    own = [row for row in known if host_of(row.name) == host]
    if not own:
        names = sorted({host_of(row.name) for row in known})
        raise NotFound(f"No worker came from the host {host!r}; they came from: {', '.join(names) or 'none'}")
    return own
