"""How far re-judgings are."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from server.models.evaluation import Rejudging
from server.rejudging import rejudging_repository


@dataclass(frozen=True)
class RejudgingProgress:
    """How far a re-judging is. states: evaluations in each state."""

    states: dict[str, int]
    runs_done: int
    runs: int

    @property
    def evaluations(self) -> int:
        return sum(self.states.values())

    @property
    def ended(self) -> int:
        return sum(self.states.get(state, 0) for state in rejudging_repository.ENDED)

    @property
    def is_complete(self) -> bool:
        return self.ended == self.evaluations


def get_progress(session: Session, rejudging: Rejudging) -> RejudgingProgress:
    """Return how far one re-judging is."""
    return list_progress(session, [rejudging])[rejudging.id]


def list_progress(session: Session, rejudgings: Sequence[Rejudging]) -> dict[str, RejudgingProgress]:
    """Return how far each re-judging is, by its id."""
    ids = [rejudging.id for rejudging in rejudgings]
    states, runs = rejudging_repository.evaluation_states(session, ids), rejudging_repository.runs(session, ids)
    return {key: RejudgingProgress(states.get(key, {}), *runs.get(key, (0, 0))) for key in ids}
