"""What a participant reads about a failed submission: what happened, where, and what to do next."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lethe.submission.failure_place import names_line
from server.disclosure import gate
from server.models.evaluation import Evaluation
from server.models.submission import Fault, Submission

ADVICE = {
    "timeout": "Do fewer epochs or steps: the limit of one run is on the overview page.",
    "time-limit": "Do fewer epochs or steps: the processor time of one run is on the overview page.",
    "idle": "Remove sleeps and waits.",
    "out-of-memory": "Use smaller batches, or keep fewer copies of the network.",
    "process-limit": "Start fewer workers; a loader needs none.",
    "log-limit": "Print less; progress bars count.",
    "disk-limit": "Write less: nothing written there is kept.",
    "no-entry-point": "Define a function unlearning at the top level of the file.",
    "wrong-signature": "Take the network and three loaders, in that order.",
    "syntax-error": "Fix the line; `python -m py_compile` finds such errors before you send a file.",
    "exception": "Fix the line and submit again.",
    "wrong-weights": "Change the network's values, not its structure: names, shapes and dtypes must stay.",
    "non-finite-weights": "Lower the learning rate, or clip the gradients.",
    "half-precision-overflow": "Save the model in float32: call .float() before state_dict().",
    "huge-weights": "Lower the learning rate, or clip the gradients.",
    "no-weights": "Return from the function normally; do not call exit.",
    "killed": "A crash in native code can cause this. Run it on the public sample.",
}
TITLES = {
    Fault.PARTICIPANT.value: "The code could not be scored",
    Fault.ORGANISER.value: "The competition's data is faulty",
    Fault.HOST.value: "Platform failure",
}
UNLIKE_THE_SAMPLE = "The smoke run passed: hidden data differ from the public sample, for example in their size."
NOT_YOURS = "This was not your fault and does not count. Submit it again, or ask the organisers to run it again."


@dataclass(frozen=True)
class FailureTexts:
    """The texts about a failed submission."""

    title: str
    message: str
    exception_type: str
    file: str
    line: int
    advice: str

    @property
    def names_its_line(self) -> bool:
        """Whether the message says which line it is about."""
        return names_line(self.message, self.line)


def describe_failure(submission: Submission, *, evaluation: Evaluation | None = None) -> FailureTexts | None:
    """Return why the submission failed, or None if it did not.

    evaluation: for organisers, the evaluation that failed: it keeps what the team is not told.
    """
    if submission.error_class is None:
        return None
    error = (evaluation.error if evaluation is not None else None) or gate.failure(submission)
    advice = _advice(submission.error_class, error) if submission.fault != Fault.HOST.value else NOT_YOURS
    return FailureTexts(
        title=TITLES.get(submission.fault or "", "Failed"),
        message=str(error.get("message") or ""),
        exception_type=str(error.get("exception_type") or ""),
        file=str(error.get("file") or ""),
        line=int(error.get("line") or 0),
        advice=advice,
    )


def raised_line(traceback: str, exception_type: str) -> str:
    """Return the line of a traceback that names the exception and says what it says; empty if none does."""
    lines = [line.strip() for line in traceback.splitlines()]
    named = (line for line in reversed(lines) if line.partition(":")[0].rpartition(".")[2] == exception_type)
    return next(named, "") if exception_type else ""


def _advice(error_class: str, error: Mapping[str, Any]) -> str:
    if error_class == "exception" and "bits" in error:
        return f"{ADVICE[error_class]} {UNLIKE_THE_SAMPLE}"
    if error.get("withheld"):
        return "Run it on the public sample, where nothing is withheld: `lethe check FILE --log`."
    return ADVICE.get(error_class, "Read the message, and run it on the public sample.")
