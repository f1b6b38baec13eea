"""The verdict on a run: whose fault it was and what to show, from measured facts. Pure: no clock, file or process.

Facts are measured outside the run. A claim comes from inside the run. It can only select among the
participant's own errors; it cannot excuse the participant or blame the host.
"""

import builtins
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from lethe.runtime.error_classes import CLAIMABLE, Blame, ErrorClass, name_as_sent
from sandbox.frame_reader import FrameState, WeightsProblem

BESIDE_THE_CODE = (
    " The file was sent along and lies beside the code, not in the current folder: open it by "
    "`pathlib.Path(__file__).parent / {name!r}`."
)
UNCHANGED = (
    "The weights that the run gave are the original model's, bit for bit. If it trained a copy (net = deepcopy(net)), "
    "return that copy, or change the network that it is given."
)
SAMPLES = {  # how the loaders of the run gave batches
    "dict": " Batches are dicts here: batch['image'], batch['label'] (also `x, y = batch`). For (inputs, targets) "
    "pairs begin the entry file with the line `# lethe: samples = tuple`.",
    "tuple": " Batches are pairs (inputs, targets) here. For dicts with the keys image, label, image_id, age and "
    "person_id begin the entry file with the line `# lethe: samples = dict`.",
}
WHICH_FILES_COUNT = "Name the models unlearned_checkpoint_<number>.pth, or list those that count in a submission.zip."
ORGANISERS_OVERFLOW = (
    " The competition's original model itself holds numbers there that half precision cannot; tell the organiser."
)
NOT_INSTALLED = " {module} is not installed on the server, and a run has no network to install it."
OTHER_VERSION = " The module is there, but not what the code imports from it: the server's version is another one."
NO_NETWORK = " There is no network in here: bring what the code downloads in a zip, or do without it."


class KillReason(StrEnum):
    """Why the launcher ended a run."""

    WALL_TIME = "wall-time"
    IDLE_TIME = "idle-time"
    CPU_TIME = "cpu-time"
    STARVED = "starved"  # of processor time, by other work of the machine
    MEMORY = "memory"
    LOG = "log"
    STOPPED = "stopped"
    CLOSED_FRAME = "closed-frame"


@dataclass(frozen=True)
class ExitFacts:
    """What the host measured of one run. Only `claim` comes from inside."""

    frame: FrameState = FrameState.NONE
    frame_bytes: int = 0
    kill_reason: KillReason | None = None
    exit_code: int | None = None
    signal: int | None = None
    oom_kills: int = 0
    refused_forks: int = 0
    problem: WeightsProblem | None = None
    is_wrong_return: bool = False
    claim: dict[str, Any] | None = None
    host_error: str = ""


@dataclass(frozen=True)
class Verdict:
    """A run's outcome. `message` may be shown to the participant and says what to do.

    class_message: the part of it that every failure of this class has.
    detail_bits: how much all that stands here beyond the class can tell, at most. A submission chooses its outcome
        from the data, so every distinguishable answer is a message; whoever shows verdicts of hidden runs adds up.
    """

    outcome: str  # "weights" or "failed"
    fault: Blame
    error_class: str = ""
    message: str = ""
    exception_type: str = ""
    file: str = ""
    line: int = 0
    class_message: str = ""
    detail_bits: float = 0.0


@dataclass(frozen=True)
class Context:
    """What a message may name: the limits, the submission's own files, the original model's tensors.

    files: how many lines each has.
    """

    limits: dict[str, Any]
    files: Mapping[str, int] = field(default_factory=dict)
    tensors: frozenset[str] = frozenset()
    entry_file: str = ""
    entry_function: str = "unlearning"
    sent_as: str = ""  # the upload's name, by which its author knows a lone file
    open_log: bool = False  # a run on the public sample: whatever it says may be shown
    libraries: tuple[str, ...] = ()  # what a run can import
    overflowing: frozenset[str] = frozenset()  # the original model's tensors that half precision cannot hold


_BY_KILL = {
    KillReason.WALL_TIME: ErrorClass.TIMEOUT,
    KillReason.IDLE_TIME: ErrorClass.IDLE,
    KillReason.CPU_TIME: ErrorClass.TIME_LIMIT,
    KillReason.MEMORY: ErrorClass.OUT_OF_MEMORY,
    KillReason.LOG: ErrorClass.LOG_LIMIT,
    KillReason.CLOSED_FRAME: ErrorClass.NO_WEIGHTS,
}
_BY_PROBLEM = {
    "non-finite": ErrorClass.NON_FINITE_WEIGHTS,
    "half-precision": ErrorClass.HALF_PRECISION_OVERFLOW,
    "huge": ErrorClass.HUGE_WEIGHTS,
}
_ABOUT_SKIPPED = frozenset({ErrorClass.SKIPPED_NAME, ErrorClass.MODEL_AFTER_SKIP})
MAX_CAUSE_CHARS = 300
MAX_NAME_CHARS, MAX_FILES_NAMED = 120, 8
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
_EXCEPTIONS = frozenset(
    name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
)
_NAMES_A_TENSOR = frozenset({ErrorClass.WRONG_WEIGHTS, *_BY_PROBLEM.values()})
_SIGXCPU = 24
_NETWORK_ERRORS = frozenset(
    {
        "ConnectError",
        "ConnectionError",
        "LocalEntryNotFoundError",
        "MaxRetryError",
        "OfflineModeIsEnabled",
        "URLError",
        "gaierror",
    }
)
EMBEDDING = "embedding.weight"  # of language models: a row for each token


def judge(facts: ExitFacts, context: Context) -> Verdict:
    """Return the verdict on one run."""
    if facts.host_error or facts.kill_reason is KillReason.STARVED:
        return _failed(ErrorClass.HOST_FAULT, context)
    if facts.kill_reason is KillReason.STOPPED:
        return _failed(ErrorClass.STOPPED, context)
    if facts.frame is FrameState.WEIGHTS and facts.kill_reason is not KillReason.CPU_TIME:
        return _of_weights(facts, context)  # processor time is measured to the end of the run
    if measured := _measured(facts):
        return _failed(measured, context)
    if facts.frame is FrameState.FAULT:
        return _of_claim(facts, context)
    return _failed(_of_exit(facts), context)


def _measured(facts: ExitFacts) -> ErrorClass | None:
    """The limit that was exceeded, by the host's measurement; it overrides any claim. None if there was none."""
    if facts.kill_reason is not None and facts.kill_reason is not KillReason.CLOSED_FRAME:
        return _BY_KILL[facts.kill_reason]
    return ErrorClass.OUT_OF_MEMORY if facts.oom_kills else None


def _of_weights(facts: ExitFacts, context: Context) -> Verdict:
    problem = facts.problem
    if facts.is_wrong_return and context.open_log:  # on hidden data it is only warned of
        return _failed(ErrorClass.WRONG_RETURN, context)
    if problem is None:
        return Verdict(outcome="weights", fault=Blame.NONE)
    error_class = _BY_PROBLEM[problem.kind]
    detail = f" The first is in {problem.tensor!r}."
    if problem.kind == "half-precision" and problem.tensor in context.overflowing:
        return _failed(error_class, context, detail=detail + ORGANISERS_OVERFLOW, fault=Blame.ORGANISER)
    return _failed(error_class, context, detail=detail)


def _of_exit(facts: ExitFacts) -> ErrorClass:
    if facts.frame is FrameState.MALFORMED:
        return ErrorClass.WRONG_WEIGHTS
    if facts.refused_forks:
        return ErrorClass.PROCESS_LIMIT
    if facts.signal == _SIGXCPU:
        return ErrorClass.TIME_LIMIT
    return ErrorClass.KILLED if facts.signal is not None else ErrorClass.NO_WEIGHTS


def _of_claim(facts: ExitFacts, context: Context) -> Verdict:
    claim = facts.claim or {}
    error_class = ErrorClass.from_name(claim.get("class"))
    if error_class is None or error_class not in CLAIMABLE:
        error_class = ErrorClass.EXCEPTION
    if error_class is ErrorClass.EXCEPTION and facts.refused_forks:
        error_class = ErrorClass.PROCESS_LIMIT
    file, line = _place(claim, context)
    detail = _difference(claim.get("detail"), context) if error_class is ErrorClass.WRONG_WEIGHTS else ""
    detail += _skipped(claim.get("detail"), context) if error_class in _ABOUT_SKIPPED else ""
    where = f" See {name_as_sent(file, context.sent_as)}, line {line}." if line else ""
    detail += _uncounted(claim.get("written"), context)
    exception_type = _exception_type(claim, open_log=context.open_log)
    detail += _beside_the_code(claim.get("beside"), context)
    detail += _about_samples(claim.get("samples"), context)
    detail += _missing(claim, exception_type, context)
    return _failed(error_class, context, detail=detail + where, exception_type=exception_type, file=file, line=line)


def _missing(claim: dict[str, Any], exception_type: str, context: Context) -> str:
    """Say what is not there: a module, a name in one, the network. What only the run claims, not on hidden data."""
    if exception_type == "ModuleNotFoundError":
        module = claim.get("module") if context.open_log else None
        named = isinstance(module, str) and all(map(_IDENTIFIER.fullmatch, module.split(".")))
        said = NOT_INSTALLED.format(module=f"The module {module!r}" if named else "What the code imports")
        return f"{said} These libraries are installed: {', '.join(context.libraries)}." if context.libraries else said
    if exception_type == "ImportError":
        return OTHER_VERSION
    names = claim.get("mro")
    if context.open_log and isinstance(names, list) and not _NETWORK_ERRORS.isdisjoint(map(str, names[:32])):
        return NO_NETWORK
    return ""


def _place(claim: dict[str, Any], context: Context) -> tuple[str, int]:
    """Only a line that the file has: an invented number would leak data. An error may be after the last line."""
    file, line = claim.get("file"), claim.get("line")
    if isinstance(file, str) and type(line) is int and 1 <= line <= context.files.get(file, -1) + 1:
        return file, line
    return "", 0


def _exception_type(claim: dict[str, Any], *, open_log: bool) -> str:
    """The exception's name; on hidden data the nearest built-in one, because an invented name would leak data."""
    names = claim.get("mro")
    names = names if isinstance(names, list) else []
    for name in names[:32]:
        if isinstance(name, str) and (name in _EXCEPTIONS or (open_log and _IDENTIFIER.fullmatch(name))):
            return name
    return ""


def _difference(detail: Any, context: Context) -> str:
    """Say which tensor differs, using only names of the original model."""
    if not isinstance(detail, dict):
        return ""
    name, kind = detail.get("tensor"), detail.get("kind")
    if kind == "extra":
        return " It has a tensor that the original lacks: keep tied layers tied, and merge adapters into the weights."
    if not isinstance(name, str) or name not in context.tensors:
        return ""
    vocabulary = " The vocabulary must not change." if name == EMBEDDING else ""
    differences = {
        "missing": f"It lacks {name!r}.",
        "storage": f"{name!r} is no plain tensor: it is sparse, quantised or has no numbers. Make it dense at the end.",
        "shape": f"{name!r} has another shape.{vocabulary}",
        "dtype": f"{name!r} has another dtype. Call net.float() at the end if you have cast it.",
    }
    return f" {differences[kind]}" if isinstance(kind, str) and kind in differences else ""


def _skipped(detail: Any, context: Context) -> str:
    """Say which statement was skipped, and why; all of it is the run's own word, so not on hidden data."""
    if not isinstance(detail, dict) or not context.open_log:
        return ""
    place = name_as_sent(str(detail.get("file", ""))[:100], context.sent_as)
    name, cause = detail.get("name"), str(detail.get("cause", ""))[:MAX_CAUSE_CHARS]
    named = f"{name[:100]!r} was not set: " if isinstance(name, str) else ""
    return f" {named}{place}, line {detail.get('line')} failed with {cause}."


def _beside_the_code(name: Any, context: Context) -> str:
    """Say how to open a file that was sent along; the run's own word, so not on hidden data."""
    if not context.open_log or not isinstance(name, str):
        return ""
    return BESIDE_THE_CODE.format(name=name[:MAX_NAME_CHARS])


def _about_samples(style: Any, context: Context) -> str:
    """Say in which form the loaders give batches and how to choose; the run's own word, so not on hidden data."""
    if not context.open_log or EMBEDDING in context.tensors or not isinstance(style, str):
        return ""  # batches of texts have one form
    return SAMPLES.get(style, "")


def _uncounted(written: Any, context: Context) -> str:
    """Say which files a notebook has written without one that counts; the run's own word, so not on hidden data."""
    if not isinstance(written, list) or not written or not context.open_log:
        return ""
    named = ", ".join(str(name)[:MAX_NAME_CHARS] for name in written[:MAX_FILES_NAMED])
    more = f" and {len(written) - MAX_FILES_NAMED} more" if len(written) > MAX_FILES_NAMED else ""
    return f" No file counted as a run's model; written were {named}{more}. {WHICH_FILES_COUNT}"


def _failed(
    error_class: ErrorClass,
    context: Context,
    *,
    fault: Blame | None = None,
    detail: str = "",
    exception_type: str = "",
    file: str = "",
    line: int = 0,
) -> Verdict:
    names = {"entry_file": name_as_sent(context.entry_file, context.sent_as), "entry_function": context.entry_function}
    text = error_class.open_message if context.open_log else ""
    message = (text or error_class.message).format(**{**context.limits, **names})
    return Verdict(
        outcome="failed",
        fault=fault or error_class.blame,
        error_class=error_class,
        message=message + detail,
        class_message=message,
        exception_type=exception_type,
        file=file,
        line=line,
        detail_bits=_detail_bits(error_class, context, detail=detail, exception_type=exception_type, line=line),
    )


def _detail_bits(error_class: ErrorClass, context: Context, *, detail: str, exception_type: str, line: int) -> float:
    bits = 0.0
    if exception_type:
        bits += math.log2(len(_EXCEPTIONS) + 1)
    if line:
        bits += math.log2(sum(context.files.values()) + len(context.files) + 1)
    if detail and error_class in _NAMES_A_TENSOR:
        bits += math.log2(4 * len(context.tensors) + 2)
    return bits
