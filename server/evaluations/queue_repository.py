"""SQL of the queue: which shard is the fairest one, and how long the others have waited.

The cost of a claim does not grow with the queue. A recursive query descends the queue's index once per team that
waits, to that team's best shard and from there to the next team, and so never walks along a team's other shards.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache

from sqlalchemy import (
    CTE,
    ColumnElement,
    FromClause,
    ScalarSelect,
    Select,
    String,
    bindparam,
    exists,
    func,
    literal_column,
    select,
    true,
    update,
)
from sqlalchemy.orm import Session, aliased
from sqlalchemy.sql.dml import ReturningUpdate

from server.db import database_time
from server.models.competition import Competition, Split, SplitState, Team
from server.models.evaluation import Shard, ShardKind, ShardState
from server.queue import MOST_WAKE_UPS, RoutingKey


def take_fairest(
    session: Session, *, worker: str, lease_s: float, splits: Sequence[str] | None, token_id: str | None = None
) -> Shard | None:
    """Lease the fairest queued shard to `worker`: of the highest priority, of the team with the least running work,
    among those the one that was served longest ago, then the oldest.

    splits: the ids of those that the worker may serve; None for all. token_id: of an untrusted worker, which gets no
    shard that is for trusted ones. Shards that another claim holds now are passed over, so claims never wait for each
    other.
    """
    on_postgresql = session.get_bind().dialect.name == "postgresql"
    chosen = None if splits is None else tuple(splits)
    statement = _take(on_postgresql, lease_s, chosen, trusted=token_id is None)
    options = {"synchronize_session": False, "populate_existing": True}
    values = {"claimant": worker, "token": token_id}
    return session.scalars(statement, values, execution_options=options).one_or_none()


@lru_cache(maxsize=64)
def _take(
    on_postgresql: bool, lease_s: float, splits: tuple[str, ...] | None, *, trusted: bool
) -> ReturningUpdate[Shard]:
    """Return the statement of a claim. Putting it together costs more than all else that a claim does in Python."""
    first = _first_unlocked if on_postgresql else _first
    return (
        update(Shard)
        .where(Shard.id == first(splits, trusted=trusted))
        .values(
            state=ShardState.LEASED.value,
            attempt=Shard.attempt + 1,
            worker=bindparam("claimant", type_=String()),
            token_id=bindparam("token", type_=String()),
            claimed_at=database_time(),
            lease_expires_at=database_time(lease_s),
            runs_done=0,
            wall_time_s=0.0,
        )
        .returning(Shard)
    )


def has_open_smoke_run(session: Session, split_id: str, team_id: str) -> bool:
    """Return whether a smoke run of the team on the split waits or runs."""
    of_team = Shard.split_id == split_id, Shard.team_id == team_id, Shard.kind == ShardKind.SMOKE.value
    waits, runs = (exists().where(in_state(state), *of_team) for state in (ShardState.QUEUED, ShardState.LEASED))
    return bool(session.scalar(select(waits | runs)))


def queue_age(session: Session, at: datetime) -> timedelta | None:
    """Return how long the oldest queued shard has waited."""
    oldest = session.scalar(select(func.min(Shard.queued_at)).where(in_state(ShardState.QUEUED)))
    return at - oldest if oldest else None


def forgotten(session: Session, *, queued_before: datetime) -> dict[RoutingKey, int]:
    """Return how many shards have waited since before then, by who may serve them; counts up to MOST_WAKE_UPS.

    Looks at the oldest alone: that is enough to see that somebody should be told, and who.
    """
    oldest = (
        select(Shard.split_id)
        .where(in_state(ShardState.QUEUED), Shard.queued_at < queued_before)
        .order_by(Shard.queued_at)
        .limit(MOST_WAKE_UPS)
        .subquery()
    )
    rows = session.execute(
        select(Split.device, Competition.slug, func.count())
        .join(oldest, oldest.c.split_id == Split.id)
        .join(Competition, Competition.id == Split.competition_id)
        .group_by(Split.device, Competition.slug)
    )
    return {RoutingKey(row[0], row[1]): row[2] for row in rows}


def expired_shards(session: Session, at: datetime) -> Sequence[Shard]:
    """Return the shards whose lease is over."""
    return session.scalars(select(Shard).where(in_state(ShardState.LEASED), Shard.lease_expires_at < at)).all()


def leased_by(session: Session, workers: Sequence[str]) -> Sequence[Shard]:
    """Return the shards that these workers hold."""
    mine = in_state(ShardState.LEASED), Shard.worker.in_(workers)
    return session.scalars(select(Shard).where(*mine).order_by(Shard.id)).all()


def shorten_leases(session: Session, *, at: datetime, lease_s: float) -> None:
    """Let no lease end later than one lease from now: after the clock went back, it would outlive a dead worker."""
    latest = at + timedelta(seconds=lease_s)
    session.execute(
        update(Shard)
        .where(in_state(ShardState.LEASED), Shard.lease_expires_at > latest)
        .values(lease_expires_at=latest)
    )


def in_state(state: ShardState, table: type[Shard] = Shard) -> ColumnElement[bool]:
    """Return the condition in the form of the partial indexes: a bound parameter would keep a prepared statement
    from using them."""
    return table.state == literal_column(f"'{state.value}'")


def _by_fairness(heads: FromClause) -> Select[str, str, int, int]:
    """Return (split_id, team_id, turn, id) of each waiting team's best shard, the fairest team first."""
    running = (
        select(Shard.team_id, func.count().label("shards"))
        .where(in_state(ShardState.LEASED))
        .group_by(Shard.team_id)
        .subquery("running")
    )
    return (
        select(heads.c.split_id, heads.c.team_id, heads.c.turn, heads.c.id)
        .join_from(heads, Team, Team.id == heads.c.team_id)
        .outerjoin(running, running.c.team_id == heads.c.team_id)
        .order_by(heads.c.turn, func.coalesce(running.c.shards, 0), Team.served_at.nulls_first(), heads.c.id)
    )


def _first(splits: Sequence[str] | None, *, trusted: bool) -> ScalarSelect[int]:
    """SQLite has one writer at a time: nothing is ever locked by another, and no subquery sees its neighbour."""
    first, following, known, head = (aliased(Shard) for _ in range(4))
    best = _best_priority(first, first.split_id == Split.id, _is_for(first, trusted))
    start = select(best.label("id")).where(_is_served(splits))
    ids = start.cte("ids", recursive=True)
    after = following.split_id == known.split_id, following.team_id > known.team_id
    next_team = _best_priority(following, *after, _is_for(following, trusted))
    ids = ids.union_all(select(next_team).select_from(ids).join(known, known.id == ids.c.id))
    heads = select(head.split_id, head.team_id, head.turn, head.id).join(ids, ids.c.id == head.id).subquery("heads")
    fairest = _by_fairness(heads).limit(1).subquery("fairest")
    return select(fairest.c.id).scalar_subquery()


def _first_unlocked(splits: Sequence[str] | None, *, trusted: bool) -> ScalarSelect[int]:
    """From the fairest team on, the first shard that no other claim holds. Stops at the first it finds."""
    team = _by_fairness(_heads(splits, trusted=trusted)).subquery("team")
    free = (
        select(Shard.id)
        .where(
            in_state(ShardState.QUEUED),
            Shard.split_id == team.c.split_id,
            Shard.team_id == team.c.team_id,
            Shard.turn == team.c.turn,
            _is_for(Shard, trusted),
        )
        .order_by(Shard.id)
        .limit(1)
        .with_for_update(skip_locked=True)
        .lateral("free")
    )
    return select(free.c.id).select_from(team.join(free, true())).limit(1).scalar_subquery()


def _heads(splits: Sequence[str] | None, *, trusted: bool) -> CTE:
    """Return each waiting team's best shard, once per split that it waits on."""
    first, following = aliased(Shard), aliased(Shard)
    best = _claimable_row(first, first.split_id == Split.id, _is_for(first, trusted)).lateral("best")
    start = select(*best.c).select_from(Split).join(best, true()).where(_is_served(splits))
    heads = start.cte("heads", recursive=True)
    after = following.split_id == heads.c.split_id, following.team_id > heads.c.team_id
    next_team = _claimable_row(following, *after, _is_for(following, trusted)).lateral("next_team")
    return heads.union_all(select(*next_team.c).select_from(heads.join(next_team, true())))


def _is_served(splits: Sequence[str] | None) -> ColumnElement[bool]:
    ready = Split.state == SplitState.READY.value
    return ready if splits is None else ready & Split.id.in_(splits)


def _is_for(table: type[Shard], trusted: bool) -> ColumnElement[bool]:
    return true() if trusted else table.trusted_only.is_(False)


def _claimable_row(table: type[Shard], *conditions: ColumnElement[bool]) -> Select[str, str, int, int]:
    return (
        select(table.split_id, table.team_id, table.turn, table.id)
        .where(in_state(ShardState.QUEUED, table), *conditions)
        .order_by(table.team_id, table.turn, table.id)
        .limit(1)
    )


def _best_priority(table: type[Shard], *conditions: ColumnElement[bool]) -> ScalarSelect[int]:
    return _claimable_row(table, *conditions).with_only_columns(table.id).scalar_subquery()
