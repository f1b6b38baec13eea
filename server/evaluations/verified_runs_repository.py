"""SQL of runs by untrusted workers: whose they are, which are checked, and what is dropped with them."""

from collections.abc import Sequence

from sqlalchemy import delete, or_, select, true, update
from sqlalchemy.orm import Session

from server.db import database_time
from server.models.evaluation import PrivateScore, PublicScore, Shard, ShardAttempt, ShardKind, ShardState
from server.models.metric_result import MetricResult
from server.models.worker import WorkerToken


def untrusted_tokens(session: Session, token_ids: Sequence[str]) -> Sequence[WorkerToken]:
    mine = WorkerToken.id.in_(token_ids), WorkerToken.trusted.is_(False)
    return session.scalars(select(WorkerToken).where(*mine).order_by(WorkerToken.id)).all()


def tried_by_untrusted(session: Session, shard_id: int) -> bool:
    """Return whether an untrusted worker made an attempt at the shard: its name begins with its token."""
    names = session.scalars(select(ShardAttempt.worker).where(ShardAttempt.shard_id == shard_id)).all()
    return bool(untrusted_tokens(session, [name.partition("/")[0] for name in names]))


def given_by_untrusted(session: Session, evaluation_id: str, token_id: str | None) -> Sequence[Shard]:
    """Return the shards of runs that untrusted workers, or those of one token, hold or have done."""
    whose = Shard.token_id.is_not(None) if token_id is None else Shard.token_id == token_id
    mine = Shard.evaluation_id == evaluation_id, Shard.kind == ShardKind.RUNS.value, whose
    held = Shard.state.in_([ShardState.LEASED.value, ShardState.DONE.value])
    return session.scalars(select(Shard).where(*mine, held).order_by(Shard.id)).all()


def forget_results(session: Session, shards: Sequence[Shard], *, state: ShardState, trusted_only: bool) -> None:
    """Empty these shards of one evaluation, and remove the checks of their runs. trusted_only: who makes them again."""
    of_them = or_(*(Shard.first_run.between(shard.first_run, shard.first_run + shard.n_runs - 1) for shard in shards))
    checks = Shard.evaluation_id == shards[0].evaluation_id, Shard.kind == ShardKind.CHECK.value
    session.execute(delete(Shard).where(*checks, of_them))
    session.execute(
        update(Shard)
        .where(Shard.id.in_([shard.id for shard in shards]))
        .values(
            state=state.value,
            worker=None,
            token_id=None,
            trusted_only=true() if trusted_only else Shard.trusted_only,
            lease_expires_at=None,
            queued_at=database_time(),
            runs_done=0,
            wall_time_s=0.0,
            result_key=None,
            result_sha256=None,
        )
        .execution_options(synchronize_session="fetch")
    )


def forget_score(session: Session, evaluation_id: str) -> None:
    """Remove the score of an evaluation and the metrics beside it."""
    for table in (PublicScore, PrivateScore, MetricResult):
        session.execute(delete(table).where(table.evaluation_id == evaluation_id))
