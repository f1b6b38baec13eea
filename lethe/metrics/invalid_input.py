"""The errors that metrics raise about their arrays."""

from lethe.metrics.epsilon.errors import InvalidScoreInput


class InvalidMetricInput(InvalidScoreInput):
    """An array, or a set of arrays, has no value under a metric; the message says which and why.

    side: "unlearned", "retrained", "oracle" or "original" (or a lone array); None when several are at fault.
    model, example: zero-based position of the first offending value; None when the fault is not one value's.
    """


class MissingArray(InvalidMetricInput):
    """A metric needs an array that was not given or not stored.

    array: its name. level: the capture level that stores it. how: what to do to get it.
    """

    def __init__(self, message: str, *, side: str, array: str, level: int, how: str) -> None:
        super().__init__(message, side=side)
        self.array = array
        self.level = level
        self.how = how


class UnknownMetric(InvalidMetricInput):
    """No metric has this id; the message names the nearest ones."""
