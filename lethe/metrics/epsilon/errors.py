"""The one error that scoring raises about its input."""


class InvalidScoreInput(ValueError):
    """An array cannot be scored; the message names the array, the model and the example.

    side: "unlearned" or "retrained" (or the name of a lone array); None when both are at fault.
    model, example: zero-based position of the first offending value; None when the fault is not one value's.
    """

    def __init__(
        self,
        message: str,
        *,
        side: str | None = None,
        model: int | None = None,
        example: int | None = None,
    ) -> None:
        super().__init__(message)
        self.side = side
        self.model = model
        self.example = example
