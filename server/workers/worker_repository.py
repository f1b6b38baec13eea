"""SQL of workers and of the splits that they may serve."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session, joinedload

from lethe.competition.section import SCHEMA_KEY
from lethe.competition.visibility import Visibility
from server.db import changed_rows, database_time
from server.evaluations.claimed_shard import ClaimedShard
from server.models.competition import Competition, Split, SplitState
from server.models.evaluation import Shard, ShardAttempt, ShardKind, ShardState
from server.models.worker import CordonedHost, Worker, WorkerState, WorkerToken


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
    trusted_only: bool | None = False
    libraries: str | None = None
    schema_version: int | None = None


@dataclass(frozen=True)
class CheckedClaim:
    """What an untrusted worker gave for a check's runs. earlier: a first trusted worker's outputs that differed."""

    shard_id: int
    token_id: str
    first_run: int
    key: str
    sha256: str
    earlier: tuple[str, str] | None


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
            Competition.config["workers"]["trusted_only"].as_boolean(),
            Competition.config["submissions"]["libraries"].as_string(),
            Competition.config[SCHEMA_KEY].as_integer(),
        )
        .join(Competition, Competition.id == Split.competition_id)
        .where(Split.state == SplitState.READY.value)
    )
    if competitions is not None:
        statement = statement.where(Competition.slug.in_(competitions))
    if public_only:
        statement = statement.where(Split.visibility == Visibility.PUBLIC.value)
    return [ReadySplit(*row) for row in session.execute(statement)]


def n_forget(session: Session, shard: ClaimedShard) -> int:
    """Return how many examples the forget set of the shard's split has."""
    statement = select(Split.n_forget).join(Shard, Shard.split_id == Split.id).where(Shard.id == shard.shard_id)
    return session.scalars(statement).one() or 0


def own_workers(session: Session) -> Sequence[Worker]:
    """Return the processes of the instance's own workers, by name."""
    return session.scalars(select(Worker).where(Worker.token_id.is_(None)).order_by(Worker.name)).all()


def cordoned_hosts(session: Session) -> Sequence[CordonedHost]:
    """Return the hosts that take no work."""
    return session.scalars(select(CordonedHost).order_by(CordonedHost.host)).all()


def stop_silent(session: Session, *, after_s: float) -> int:
    """Mark the instance's silent workers that hold no shard as stopped (none with a token). Return the number."""
    holding = select(Shard.worker).where(Shard.state == ShardState.LEASED.value, Shard.worker.is_not(None))
    own = Worker.token_id.is_(None), Worker.state != WorkerState.STOPPED.value
    silent = Worker.seen_at < database_time(-after_s), Worker.name.not_in(holding)
    return changed_rows(
        session,
        update(Worker)
        .where(*own, *silent)
        .values(state=WorkerState.STOPPED.value, detail=f"not heard of for {after_s:g} s: killed, or cut off"),
    )


def forget_silent(session: Session, *, after_s: float) -> None:
    """Remove workers silent for that long: names hold process ids and are not used again."""
    session.execute(delete(Worker).where(Worker.seen_at < database_time(-after_s)))


def worker_names(session: Session, token_id: str) -> Sequence[str]:
    """Return the names of the workers that came with a token."""
    return session.scalars(select(Worker.name).where(Worker.token_id == token_id)).all()


def count_workers(session: Session, token_id: str) -> int:
    return session.scalars(select(func.count()).select_from(Worker).where(Worker.token_id == token_id)).one()


def workers_with(session: Session, token_ids: Sequence[str]) -> Sequence[Worker]:
    """Return the workers registered with any of these tokens, latest report first."""
    mine = select(Worker).where(Worker.token_id.in_(token_ids))
    return session.scalars(mine.order_by(Worker.seen_at.desc(), Worker.name)).all()


def get_tokens(session: Session, competition: Competition) -> Sequence[WorkerToken]:
    """Return the competition's tokens that are not revoked, the newest first."""
    mine = WorkerToken.competition_id == competition.id, WorkerToken.revoked_at.is_(None)
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


def still_holds(session: Session, token_id: str) -> bool:
    """Return whether the token is neither revoked nor quarantined, and let nobody change that before the transaction
    ends. A shard that is claimed or closed beside a revocation is so before it, and then seen by it, or not at all."""
    valid = WorkerToken.revoked_at.is_(None), WorkerToken.quarantined_at.is_(None)
    held = select(WorkerToken.id).where(WorkerToken.id == token_id, *valid).with_for_update(read=True)
    return session.scalar(held) is not None


def token_to_change(session: Session, token_id: str) -> WorkerToken:
    """Return a token, held for a change until the transaction ends."""
    return session.get_one(WorkerToken, token_id, with_for_update=True, populate_existing=True)


def checked_claim(session: Session, check_id: int) -> CheckedClaim | None:
    """Return what a check compares with, None if that was dropped."""
    check = session.get(Shard, check_id)
    if check is None:
        return None
    held = Shard.first_run <= check.first_run, Shard.first_run + Shard.n_runs > check.first_run
    runs = Shard.evaluation_id == check.evaluation_id, Shard.kind == ShardKind.RUNS.value
    done = Shard.state == ShardState.DONE.value, Shard.token_id.is_not(None)
    given = session.scalar(select(Shard).where(*runs, *held, *done))
    if given is None or given.token_id is None:
        return None
    earlier = (check.result_key, check.result_sha256) if check.result_key and check.result_sha256 else None
    key, sha256 = given.result_key or "", given.result_sha256 or ""
    return CheckedClaim(given.id, given.token_id, given.first_run, key, sha256, earlier)


def evaluations_with_results_of(session: Session, token_id: str) -> Sequence[str]:
    """Return the evaluations that hold results of a token's workers."""
    mine = Shard.token_id == token_id, Shard.kind == ShardKind.RUNS.value, Shard.state == ShardState.DONE.value
    return session.scalars(select(Shard.evaluation_id).where(*mine).distinct().order_by(Shard.evaluation_id)).all()


def forget_sample_answers(session: Session, token_id: str) -> None:
    """Show nothing more that a token's workers sent of smoke runs."""
    mine = Shard.token_id == token_id, Shard.kind == ShardKind.SMOKE.value
    session.execute(update(Shard).where(*mine).values(result_key=None, result_sha256=None))


def contradict(session: Session, shard_id: int, *, outcome: str) -> Sequence[str]:
    """Mark the attempts of untrusted workers at a shard that ended so. Return their tokens."""
    theirs = ShardAttempt.shard_id == shard_id, ShardAttempt.outcome == outcome, ShardAttempt.worker.contains("/")
    names = session.scalars(select(ShardAttempt.worker).where(*theirs)).all()
    if names:
        session.execute(update(ShardAttempt).where(*theirs).values(outcome="refuted"))
    return sorted({name.partition("/")[0] for name in names})


def teams_contradicted(session: Session, token_id: str) -> int:
    """Return about how many teams' submissions trusted workers found otherwise than the token's workers said."""
    theirs = ShardAttempt.outcome == "refuted", ShardAttempt.worker.startswith(f"{token_id}/")
    statement = select(func.count(Shard.team_id.distinct())).join(ShardAttempt, ShardAttempt.shard_id == Shard.id)
    return session.scalar(statement.where(*theirs)) or 0


def note_use(session: Session, token_id: str, at: datetime) -> None:
    session.execute(update(WorkerToken).where(WorkerToken.id == token_id).values(last_seen_at=at))
