"""Queries about how far re-judgings are."""

from collections.abc import Sequence

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from server.models.evaluation import Evaluation, EvaluationState, Shard, ShardKind

ENDED = (EvaluationState.SCORED.value, EvaluationState.FAILED.value, EvaluationState.CANCELLED.value)
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
    """Return how many runs of each re-judging are done and how many there are, by its id.

    Of an evaluation that has ended none is to be done any more, so all of them count as done, run or not.
    """
    done = case((Evaluation.state.in_(ENDED), Shard.n_runs), else_=Shard.runs_done)
    rows = session.execute(
        select(Evaluation.rejudging_id, func.sum(done), func.sum(Shard.n_runs))
        .join(Shard, Shard.evaluation_id == Evaluation.id)
        .where(Evaluation.rejudging_id.in_(rejudging_ids), Shard.kind == ShardKind.RUNS.value)
        .group_by(Evaluation.rejudging_id)
    )
    return {row[0]: (int(row[1]), int(row[2])) for row in rows}
