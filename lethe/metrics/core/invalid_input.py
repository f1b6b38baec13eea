"""The errors that metrics and the score raise about their arrays."""


class InvalidScoreInput(ValueError):
    """An array cannot be scored; the message names the array, the model and the example.

    side: "unlearned" or "retrained" (or the name of a lone array); None when both are at fault.
    model, example: zero-based position of the first offending value; None when the fault is not one value's.
    """

    def __init__(
        self, message: str, *, side: str | None = None, model: int | None = None, example: int | None = None
    ) -> None:
        super().__init__(message)
        self.side = side
        self.model = model
        self.example = example


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
