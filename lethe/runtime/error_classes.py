"""Every class of failure: what is said of it, whose fault it is, whether the machine can cause it, where it is.

And what else a run says to its author: files under the author's names, and warnings.
"""

import re
from enum import StrEnum

ADVICE = "Read the message, and run it on the public sample."
_ONCE = (
    "Each run ends with the first model, so it would be another one than in the notebook. Write each model once, when "
    "it is finished, beginning with the lowest number; or let the whole notebook run once, with a line "
    "`# lethe: mode = notebook`."
)


class Blame(StrEnum):
    """Whose fault a failed run is; only a participant's counts against anybody."""

    NONE = "none"
    PARTICIPANT = "participant"
    ORGANISER = "organiser"
    HOST = "host"
    STOPPED = "stopped"


class ErrorClass(StrEnum):
    """A class: the name that is stored and shown, a verdict's message with the limits that it names, advice for pages,
    and the message of a run whose output is shown. What no run ends with has no message."""

    message: str
    advice: str
    open_message: str

    def __new__(cls, name: str, message: str = "", advice: str = ADVICE, open_message: str = "") -> "ErrorClass":
        member = str.__new__(cls, name)
        member._value_ = name
        member.message, member.advice, member.open_message = message, advice, open_message or message
        return member

    TIMEOUT = (
        "timeout",
        "The run was stopped after {wall_time_s:g} s, the wall time of one run. Do fewer epochs or steps.",
        "Do fewer epochs or steps: the limit of one run is on the overview page.",
    )
    EVALUATION_TIMEOUT = (
        "evaluation-timeout",
        "",
        "Do fewer epochs or steps: the limit of all runs together is on the overview page.",
    )
    TIME_LIMIT = (
        "time-limit",
        "The run used up its processor time of {cpu_allowance_s:.3g} s. Do fewer epochs or steps.",
        "Do fewer epochs or steps: the processor time of one run is on the overview page.",
    )
    IDLE = "idle", "The run did nothing for {idle_time_s:g} s and was stopped. Remove sleeps and waits."
    OUT_OF_MEMORY = (
        "out-of-memory",
        "The run needed more than its {memory_mib} MiB of memory. Use smaller batches or fewer copies.",
    )
    PROCESS_LIMIT = (
        "process-limit",
        "The run started more than its {processes} processes and threads. Start fewer workers.",
    )
    LOG_LIMIT = "log-limit", "The run printed more than {log_kib} KiB and was stopped. Print less; progress bars count."
    DISK_LIMIT = (
        "disk-limit",
        "The run filled its scratch space ({scratch_mib} MiB, {scratch_inodes} files, {file_size_mib} MiB in one "
        "file). Write less; nothing written there is kept.",
    )
    NO_ENTRY_POINT = (
        "no-entry-point",
        "{entry_file} has no function named {entry_function}. Define it at the top level of that file.",
    )
    WRONG_SIGNATURE = (
        "wrong-signature",
        "{entry_function} cannot be called with (net, retain, forget, validation). Accept those four, in that order.",
    )
    SYNTAX_ERROR = (
        "syntax-error",
        "{entry_file} is not valid Python. Try `python -m py_compile` on it.",
        "Fix the line; `python -m py_compile` finds such errors before you send a file.",
    )
    EXCEPTION = (
        "exception",
        "The code raised an exception. Run it on the public sample to see the full traceback.",
        "Fix the line and submit again.",
        "The code raised an exception. The output has the full traceback.",
    )
    WRONG_WEIGHTS = (
        "wrong-weights",
        "The unlearned model's state_dict differs from the original model's in names, shapes or dtypes. Change the "
        "network's values in place, not its structure.",
    )
    NON_FINITE_WEIGHTS = (
        "non-finite-weights",
        "The unlearned model holds NaN or infinity. Lower the learning rate or clip gradients.",
    )
    HALF_PRECISION_OVERFLOW = (
        "half-precision-overflow",
        "The unlearned model holds infinity where it was saved in half precision (float16), whose largest number is "
        "65504. Save it in float32.",
    )
    HUGE_WEIGHTS = (
        "huge-weights",
        "The unlearned model holds a value above {max_abs_weight:g}. Lower the learning rate.",
    )
    NO_WEIGHTS = (
        "no-weights",
        "The run ended before its weights were complete. Return from {entry_function} normally; do not call exit.",
    )
    KILLED = (
        "killed",
        "The run was ended by a signal. A crash in native code can cause this; run it on the public sample.",
        "The run was ended by a signal. A crash in native code can cause this; the output may say where.",
    )
    CUDA_REQUIRED = (
        "cuda-required",
        "The code requires a GPU, and there is none here. Use the CPU where torch.cuda.is_available() is False.",
    )
    TOO_FEW_CHECKPOINTS = (
        "too-few-checkpoints",
        "The notebook left fewer models than the competition has runs. Save each as "
        "/kaggle/tmp/unlearned_checkpoint_<number>.pth.",
    )
    TOO_MANY_CHECKPOINTS = (
        "too-many-checkpoints",
        "The notebook wrote far more models than the competition has runs. Save each model once, when it is finished.",
    )
    UNREADABLE_CHECKPOINT = (
        "unreadable-checkpoint",
        "One of the notebook's model files is not a state_dict. Write it with torch.save(net.state_dict(), path).",
    )
    WRONG_RETURN = (
        "wrong-return",
        "{entry_function} returned neither None nor a network. Return nothing, or only the network.",
    )
    NO_MODEL = (
        "no-model",
        "The notebook has ended without a model and without a function {entry_function}. Save each model as "
        "/kaggle/tmp/unlearned_checkpoint_<number>.pth, or define the function.",
    )
    SKIPPED_NAME = "skipped-name", "The code reads a name that a statement was to set which cannot run here."
    MODEL_AFTER_SKIP = "model-after-skip", "The notebook writes a model, but a statement before it cannot run here."
    ONE_MODEL = "one-model", "The notebook has ended before its second model."
    REWRITTEN_MODEL = "rewritten-model", "The notebook writes its first model a second time. " + _ONCE
    UNORDERED_MODELS = (
        "unordered-models",
        "The notebook does not write its models in the order of their numbers. " + _ONCE,
    )
    OTHER_MODELS = (
        "other-models",
        "The notebook's archive does not begin with the first model that it writes. " + _ONCE,
    )
    STOPPED = "stopped", "The server stopped the run; it does not count."
    HOST_FAULT = "host-fault", "The server had a problem. The run is repeated and does not count against your quota."
    WORKER_LOST = "worker-lost"
    NOT_SCORED = "not-scored"

    @classmethod
    def from_name(cls, name: object) -> "ErrorClass | None":
        """Return the class of that name; None for one of another version, or of a refused upload."""
        return next((one for one in cls if one == name), None)

    @classmethod
    def _missing_(cls, value: object) -> "ErrorClass":
        """Return what was stored under the name of another version, or of a refused upload."""
        unknown = str.__new__(cls, str(value))
        unknown._name_ = unknown._value_ = str(value)
        unknown.message, unknown.advice, unknown.open_message = "", ADVICE, ""
        return unknown

    @property
    def blame(self) -> Blame:
        return _BLAME.get(self, Blame.PARTICIPANT)


# What a run itself may say that it ended with.
CLAIMABLE = frozenset(
    {
        ErrorClass.OUT_OF_MEMORY,
        ErrorClass.PROCESS_LIMIT,
        ErrorClass.DISK_LIMIT,
        ErrorClass.NO_ENTRY_POINT,
        ErrorClass.WRONG_SIGNATURE,
        ErrorClass.SYNTAX_ERROR,
        ErrorClass.EXCEPTION,
        ErrorClass.WRONG_WEIGHTS,
        ErrorClass.CUDA_REQUIRED,
        ErrorClass.TOO_FEW_CHECKPOINTS,
        ErrorClass.TOO_MANY_CHECKPOINTS,
        ErrorClass.UNREADABLE_CHECKPOINT,
        ErrorClass.NO_MODEL,
        ErrorClass.SKIPPED_NAME,
        ErrorClass.MODEL_AFTER_SKIP,
        ErrorClass.ONE_MODEL,
        ErrorClass.REWRITTEN_MODEL,
        ErrorClass.UNORDERED_MODELS,
        ErrorClass.OTHER_MODELS,
    }
)
# What a machine can be the cause of: another one may give a result.
OF_THE_MACHINE = frozenset(
    {ErrorClass.TIMEOUT, ErrorClass.TIME_LIMIT, ErrorClass.IDLE, ErrorClass.OUT_OF_MEMORY, ErrorClass.HOST_FAULT}
)
_BLAME = {
    ErrorClass.STOPPED: Blame.STOPPED,
    ErrorClass.HOST_FAULT: Blame.HOST,
    ErrorClass.WORKER_LOST: Blame.HOST,
    ErrorClass.NOT_SCORED: Blame.HOST,
}


def names_line(message: str, line: int) -> bool:
    """Return whether the message says that it is about this line."""
    return re.search(rf"\bline {line}\b", message) is not None


def place_beside(message: str, *, file: str | None, line: int | None) -> str:
    """Return ` (file, line 4)`; nothing where there is no such place, or the message names the line."""
    return f" ({file}, line {line})" if file and line and not names_line(message, line) else ""


START = "Traceback (most recent call last):"
CHAINED = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
MAX_LINES = 20  # of a log without a traceback


def last_traceback(log: str) -> str:
    """Return the last traceback of a log with those that led to it, uncut; without one, the log's last lines."""
    lines = log.rstrip().split("\n")
    starts = [number for number, line in enumerate(lines) if line.startswith(START)]
    if not starts:
        return "\n".join(lines[-MAX_LINES:])
    first = len(starts) - 1
    while first > 0 and any(line in CHAINED for line in lines[starts[first - 1] : starts[first]]):
        first -= 1
    return "\n".join(lines[starts[first] :])


CELL_FILE = re.compile(r"cell-0*(\d+)\.py")
STAGED_FILE = re.compile(r'File "[^"\n]*/submission\.py"')  # a lone file, where it runs

WARNING = "lethe: warning:"  # begins a line of the output that is shown apart from it


def warnings_in(log: str) -> list[str]:
    """Return what a run was warned of, each once."""
    lines = [line.removeprefix(WARNING).strip() for line in log.splitlines() if line.startswith(WARNING)]
    return list(dict.fromkeys(lines))


def name_as_sent(file: str, sent_as: str) -> str:
    """Return how to name a file of a package to its author.

    sent_as: the upload's name. A lone .py file has that name whatever it is run as, a notebook's cell a number; a zip's
    files keep theirs.
    """
    if sent_as.endswith(".py"):
        return sent_as
    if sent_as.endswith(".ipynb"):
        cell = CELL_FILE.fullmatch(file)
        return f"{sent_as}, cell {cell[1]}" if cell else sent_as
    return file


def log_as_sent(log: str, sent_as: str) -> str:
    """Return what a run printed, with a lone .py file in its tracebacks under the upload's name, `sent_as`."""
    return STAGED_FILE.sub(lambda _: f'File "{sent_as}"', log) if sent_as.endswith(".py") else log
