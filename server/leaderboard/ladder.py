"""The ladder: a public score that moves only in steps, so that it says little about the hidden labels.

Each look at an exact public score tells a team something about the data behind it, and enough looks let it fit the
board instead of the task. The ladder mechanism answers with the best score so far, and moves it only when a submission
beats it by more than a step, to the nearest multiple of that step. Its error on k submissions then grows like
(log k)^(1/3), not like sqrt(k).

Source: Blum and Hardt 2015, The Ladder: A Reliable Leaderboard for Machine Learning Competitions, algorithm 1; there
losses fall, here scores rise.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple


class Try(NamedTuple):
    """A scored submission."""

    submission_id: str
    received_at: datetime
    score: float
    mode: str = "function"
    is_unconfirmed: bool = False


class Rung(NamedTuple):
    """What is shown after a submission: the team's score, and the submission that last moved it."""

    submission_id: str
    received_at: datetime
    score: float
    mode: str
    is_unconfirmed: bool


def climb(tries: Iterable[Try], *, step: float) -> dict[str, Rung]:
    """Return what is shown after each submission of one team, by submission id.

    tries: of one team, in the order of receipt. step: > 0; the first submission always sets the score.
    """
    shown: dict[str, Rung] = {}
    present: Rung | None = None
    for attempt in tries:
        if present is None or attempt.score > present.score + step:
            score = round(attempt.score / step) * step
            present = Rung(attempt.submission_id, attempt.received_at, score, attempt.mode, attempt.is_unconfirmed)
        shown[attempt.submission_id] = present
    return shown
