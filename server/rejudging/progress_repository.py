"""Queries about how far re-judgings are."""

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.models.evaluation import Evaluation, Shard, ShardKind

Counts = dict[str, dict[str, int]]  # of a re-judging: evaluations in each state


def evaluation_states(session: Session, rejudging_ids: Sequence[str]) -> Counts:
    """Return how many evaluations of each re-judging are in each state, by its id."""
    states: Counts = {}
    for rejudging_id, state, count in session.execute(
        select(Evaluation.rejudging_id, Evaluation.state, func.count())
        .where(Evaluation.rejudging_id.in_(rejudging_ids))
        .group_by(Evaluation.rejudging_id, Evaluation.state)
    ):
        states.setdefault(rejudging_id, {})[state] = count
    return states


def runs(session: Session, rejudging_ids: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return how many runs of each re-judging are done and how many there are, by its id."""
    rows = session.execute(
        select(Evaluation.rejudging_id, func.sum(Shard.runs_done), func.sum(Shard.n_runs))
        .join(Shard, Shard.evaluation_id == Evaluation.id)
        .where(Evaluation.rejudging_id.in_(rejudging_ids), Shard.kind == ShardKind.RUNS.value)
        .group_by(Evaluation.rejudging_id)
    )
    return {row[0]: (int(row[1]), int(row[2])) for row in rows}
