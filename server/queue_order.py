"""The one order of the queue. docs/operators/operations.md describes it for people.

A shard's `turn` is its class and, within the class, its round; lower is served first, then the older shard. In a round
each team has one evaluation, so a team that sends many waits for its own, and nobody else does.
"""

from enum import IntEnum

ROUNDS = 100_000_000  # of one class


class Turn(IntEnum):
    """Classes of shards, the first served first."""

    SMOKE = 0  # takes a second and tells the participant the most; one of a team at a time
    CHECK = 1  # the score of a submission whose runs are done waits for it
    BEGUN = 2  # runs of an evaluation of which a worker has run some: it ends before another begins
    ORGANISER = 3  # what an organiser asks for by hand
    NEW = 4
    REJUDGING = 5  # scoring a set again has no hurry
    BASELINE = 6  # nobody waits for a reference line; it takes what others leave

    @property
    def first(self) -> int:
        """The turn of its first round."""
        return self.value * ROUNDS

    @property
    def has_rounds(self) -> bool:
        return self >= Turn.NEW
