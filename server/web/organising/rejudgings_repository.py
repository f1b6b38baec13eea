"""Queries of the pages about re-judgings: how far each is, who made it, what its submissions are called."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.models.account import Account
from server.models.competition import Team
from server.models.evaluation import Evaluation, EvaluationState, Shard, ShardKind

ENDED = (EvaluationState.SCORED.value, EvaluationState.FAILED.value, EvaluationState.CANCELLED.value)


@dataclass(frozen=True)
class Progress:
    """How far a re-judging is. states: evaluations in each state."""

    states: dict[str, int]
    runs_done: int
    runs: int

    @property
    def evaluations(self) -> int:
        return sum(self.states.values())

    @property
    def ended(self) -> int:
        return sum(self.states.get(state, 0) for state in ENDED)

    @property
    def is_complete(self) -> bool:
        return self.ended == self.evaluations


NOTHING = Progress({}, 0, 0)


def progress(session: Session, rejudging_ids: Sequence[str]) -> dict[str, Progress]:
    """Return how far each re-judging is, by its id."""
    mine = Evaluation.rejudging_id.in_(rejudging_ids)
    states: dict[str, dict[str, int]] = {}
    for rejudging_id, state, count in session.execute(
        select(Evaluation.rejudging_id, Evaluation.state, func.count())
        .where(mine)
        .group_by(Evaluation.rejudging_id, Evaluation.state)
    ):
        states.setdefault(rejudging_id, {})[state] = count
    runs = session.execute(
        select(Evaluation.rejudging_id, func.sum(Shard.runs_done), func.sum(Shard.n_runs))
        .join(Shard, Shard.evaluation_id == Evaluation.id)
        .where(mine, Shard.kind == ShardKind.RUNS.value)
        .group_by(Evaluation.rejudging_id)
    )
    counted = {row[0]: (int(row[1]), int(row[2])) for row in runs}
    return {key: Progress(found, *counted.get(key, (0, 0))) for key, found in states.items()}


def names_of_accounts(session: Session, account_ids: Sequence[str]) -> dict[str, str]:
    return dict(session.execute(select(Account.id, Account.name).where(Account.id.in_(account_ids))).all())


def names_of_teams(session: Session, team_ids: Sequence[str]) -> dict[str, str]:
    return dict(session.execute(select(Team.id, Team.name).where(Team.id.in_(team_ids))).all())


def team_called(session: Session, competition_id: str, name: str) -> Team | None:
    same = Team.competition_id == competition_id, Team.name_key == name.casefold()
    return session.scalar(select(Team).where(*same))
