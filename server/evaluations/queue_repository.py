"""SQL of the queue: which shard is next, and how long the others have waited.

The cost of a claim grows neither with the queue nor with its teams: one descent of the queue's index for each split.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache

from sqlalchemy import (
    ColumnElement,
    FromClause,
    ScalarSelect,
    Select,
    String,
    bindparam,
    case,
    func,
    literal_column,
    not_,
    or_,
    select,
    true,
)
from sqlalchemy.orm import Session, aliased
from sqlalchemy.sql.dml import ReturningUpdate

from server.db import database_time
from server.jobs.leases import AVOIDED_FOR_S, claiming, take
from server.models.competition import Competition, Split, SplitState
from server.models.evaluation import Evaluation, EvaluationState, Shard, ShardKind, ShardState
from server.models.submission import Submission
from server.models.worker import host_of
from server.queue import MAX_WAKE_UPS, ROUNDS, RoutingKey, Turn


def take_fairest(
    session: Session, *, worker: str, lease_s: float, splits: Sequence[str] | None, token_id: str | None = None
) -> Shard | None:
    """Lease the next queued shard to `worker`: of the first class, of the competition with the least running work, of
    the earliest round, then the oldest (server.queue).

    splits: the ids of those that the worker may serve; None for all. token_id: of an untrusted worker, which gets no
    shard that is for trusted ones. Shards that another claim holds now are passed over, so claims never wait for each
    other, and so are for a while those that the worker's host has just failed at.
    """
    on_postgresql = session.get_bind().dialect.name == "postgresql"
    chosen = None if splits is None else tuple(splits)
    statement = _take(on_postgresql, lease_s, chosen, trusted=token_id is None)
    return take(session, statement, {"claimant": worker, "host": host_of(worker), "token": token_id})


@lru_cache(maxsize=64)
def _take(
    on_postgresql: bool, lease_s: float, splits: tuple[str, ...] | None, *, trusted: bool
) -> ReturningUpdate[Shard]:
    """Return the statement of a claim. Putting it together costs more than all else that a claim does in Python."""
    first = _first_unlocked if on_postgresql else _first
    return claiming(
        Shard,
        Shard.id == first(splits, trusted=trusted),
        state=ShardState.LEASED.value,
        lease_s=lease_s,
        worker=bindparam("claimant", type_=String()),
        token_id=bindparam("token", type_=String()),
        claimed_at=database_time(),
        runs_done=0,
        wall_time_s=0.0,
        turn=case((_is_new_run(), Turn.BEGUN.first), else_=Shard.turn),
    )


def _is_new_run() -> ColumnElement[bool]:
    is_run = Shard.kind == literal_column(f"'{ShardKind.RUNS.value}'")
    return is_run & (Shard.turn >= Turn.NEW.first) & (Shard.turn < Turn.NEW.first + ROUNDS)


def has_open_smoke_run(session: Session, split_id: str, team_id: str) -> bool:
    """Return whether a smoke run of the team on the split waits or runs."""
    smoke = (
        select(Shard.id)
        .join(Evaluation, Evaluation.id == Shard.evaluation_id)
        .where(Evaluation.id.in_(_open_evaluations(split_id, team_id)))
        .where(Shard.kind == ShardKind.SMOKE.value, Shard.state.in_((ShardState.QUEUED, ShardState.LEASED)))
    )
    return bool(session.scalar(select(smoke.exists())))


def next_round(session: Session, evaluation: Evaluation, team_id: str, turn: Turn) -> int:
    """Return the round of a class that an evaluation comes in: the present one, or so many later as its team has older
    evaluations open on the split."""
    of_class = Shard.turn >= turn.first, Shard.turn < turn.first + ROUNDS
    of_split = in_state(ShardState.QUEUED), Shard.split_id == evaluation.split_id
    present = session.scalar(select(func.min(Shard.turn)).where(*of_split, *of_class))
    older = _open_evaluations(evaluation.split_id, team_id).where(
        Evaluation.id != evaluation.id, Evaluation.created_at <= evaluation.created_at
    )
    n_older = session.scalar(select(func.count()).select_from(older.subquery())) or 0
    return (turn.first if present is None else present) - turn.first + n_older


def _open_evaluations(split_id: str, team_id: str) -> Select[str]:
    return (
        select(Evaluation.id)
        .join(Submission, Submission.id == Evaluation.submission_id)
        .where(
            Submission.team_id == team_id,
            Evaluation.split_id == split_id,
            Evaluation.state.in_((EvaluationState.QUEUED, EvaluationState.RUNNING)),
        )
    )


def queue_age(session: Session, at: datetime) -> timedelta | None:
    """Return how long the oldest queued shard has waited."""
    oldest = session.scalar(select(func.min(Shard.queued_at)).where(in_state(ShardState.QUEUED)))
    return at - oldest if oldest else None


def forgotten(session: Session, *, queued_before: datetime) -> dict[RoutingKey, int]:
    """Return how many shards wait since before then, by who may serve them, up to MAX_WAKE_UPS."""
    oldest = (
        select(Shard.split_id)
        .where(in_state(ShardState.QUEUED), Shard.queued_at < queued_before)
        .order_by(Shard.queued_at)
        .limit(MAX_WAKE_UPS)
        .subquery()
    )
    rows = session.execute(
        select(Split.device, Competition.slug, func.count())
        .join(oldest, oldest.c.split_id == Split.id)
        .join(Competition, Competition.id == Split.competition_id)
        .group_by(Split.device, Competition.slug)
    )
    return {RoutingKey(row[0], row[1]): row[2] for row in rows}


def leased_by(session: Session, workers: Sequence[str]) -> Sequence[Shard]:
    """Return the shards that these workers hold."""
    mine = in_state(ShardState.LEASED), Shard.worker.in_(workers)
    return session.scalars(select(Shard).where(*mine).order_by(Shard.id)).all()


def in_state(state: ShardState, table: type[Shard] = Shard) -> ColumnElement[bool]:
    """Return the condition in the form of the partial indexes: a bound parameter would keep a prepared statement
    from using them."""
    return table.state == literal_column(f"'{state.value}'")


def _in_order(heads: FromClause) -> Select[str]:
    """Return the splits on which something waits, the one that is served next first."""
    running = (
        select(Shard.competition_id, func.count().label("shards"))
        .where(in_state(ShardState.LEASED))
        .group_by(Shard.competition_id)
        .subquery("running")
    )
    return (
        select(heads.c.split_id, heads.c.id)
        .outerjoin(running, running.c.competition_id == heads.c.competition_id)
        .order_by(heads.c.turn // ROUNDS, func.coalesce(running.c.shards, 0), heads.c.turn, heads.c.id)
    )


def _first(splits: Sequence[str] | None, *, trusted: bool) -> ScalarSelect[int]:
    """SQLite has one writer at a time: nothing is ever locked by another, and no subquery sees its neighbour."""
    first, head = aliased(Shard), aliased(Shard)
    best = _claimable(first, first.split_id == Split.id, _is_for(first, trusted)).scalar_subquery()
    ids = select(best.label("id")).where(_is_served(splits)).subquery("ids")
    columns = head.split_id, head.competition_id, head.turn, head.id
    heads = select(*columns).join(ids, ids.c.id == head.id).subquery("heads")
    chosen = _in_order(heads).limit(1).subquery("chosen")
    return select(chosen.c.id).scalar_subquery()


def _first_unlocked(splits: Sequence[str] | None, *, trusted: bool) -> ScalarSelect[int]:
    """From the next split on, the first shard that no other claim holds. Stops at the first it finds."""
    first = aliased(Shard)
    best = _claimable(first, first.split_id == Split.id, _is_for(first, trusted)).add_columns(first.turn)
    head = best.lateral("head")
    columns = Split.id.label("split_id"), Split.competition_id, head.c.turn, head.c.id
    heads = select(*columns).join(head, true()).where(_is_served(splits)).subquery("heads")
    split = _in_order(heads).subquery("split")
    free = (
        _claimable(Shard, Shard.split_id == split.c.split_id, _is_for(Shard, trusted))
        .with_for_update(skip_locked=True)
        .lateral("free")
    )
    return select(free.c.id).select_from(split.join(free, true())).limit(1).scalar_subquery()


def _is_served(splits: Sequence[str] | None) -> ColumnElement[bool]:
    ready = Split.state == SplitState.READY.value
    return ready if splits is None else ready & Split.id.in_(splits)


def _is_for(table: type[Shard], trusted: bool) -> ColumnElement[bool]:
    elsewhere = or_(
        table.avoided_host.is_(None),
        table.avoided_host != bindparam("host", type_=String()),
        table.queued_at < database_time(-AVOIDED_FOR_S),
    )
    return elsewhere if trusted else elsewhere & not_(table.trusted_only)


def _claimable(table: type[Shard], *conditions: ColumnElement[bool]) -> Select[int]:
    """Return the first shard that waits of those that the conditions leave."""
    return (
        select(table.id).where(in_state(ShardState.QUEUED, table), *conditions).order_by(table.turn, table.id).limit(1)
    )
