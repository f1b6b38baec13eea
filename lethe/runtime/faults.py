"""What is said of an error in the participant's code: a class, a place in the own files, what may help."""

import errno
import os
import traceback
from pathlib import Path
from typing import Any

import torch

from lethe.runtime import data_loaders
from lethe.runtime.entry import RunFault, Task
from lethe.runtime.error_classes import ErrorClass
from lethe.runtime.notebook_cells import SkippedName, insists_on_gpu

_ERRNO_CLASSES = {
    errno.ENOSPC: ErrorClass.DISK_LIMIT,
    errno.EFBIG: ErrorClass.DISK_LIMIT,
    errno.EDQUOT: ErrorClass.DISK_LIMIT,
    errno.ENOMEM: ErrorClass.OUT_OF_MEMORY,
    errno.EAGAIN: ErrorClass.PROCESS_LIMIT,
}
_PHRASES = (
    ("can't allocate memory", ErrorClass.OUT_OF_MEMORY),
    ("CUDA error: out of memory", ErrorClass.OUT_OF_MEMORY),  # the driver's words
    ("can't start new thread", ErrorClass.PROCESS_LIMIT),
    ("StreamWriter failed writing", ErrorClass.DISK_LIMIT),
    ("iostream error", ErrorClass.DISK_LIMIT),
    ("unexpected pos ", ErrorClass.DISK_LIMIT),
)
# What errors say where code gets a dict in place of a pair, and where it gets a pair in place of a dict.
_NOT_DICTS = (
    "values to unpack",
    "'str' object has no attribute",
    "not str",
    "not DictSample",
    "'DictSample'",
    "'slice'",
)
_NOT_PAIRS = (
    "list indices must be",
    "tuple indices must be",
    "'list' object has no",
    "'tuple' object has no",
    "not list",
)


def describe(error: BaseException, task: Task) -> dict[str, Any]:
    """Return the fault's fields: a class, the exception's types from its own to its base, the own file's line."""
    if isinstance(error, RunFault):
        written = {"written": error.written} if error.written else {}
        return {"class": error.error_class, "detail": error.detail, **written}
    file, line = _own_line(error, task.submission)
    if isinstance(error, SkippedName):
        return {
            "class": ErrorClass.SKIPPED_NAME,
            "detail": {"name": error.name, **error.skipped.as_detail()},
            "file": file,
            "line": line,
        }
    beside = {"beside": found} if (found := _beside_the_code(error, task)) else {}
    about_samples = {"samples": task.style} if _is_about_samples(error, task.style) else {}
    missing = {"module": str(error.name)[:200]} if isinstance(error, ModuleNotFoundError) and error.name else {}
    return {
        **missing,
        **about_samples,
        **beside,
        "class": _error_class(error, task),
        "mro": [kind.__name__[:64] for kind in type(error).__mro__[:32]],
        "file": file,
        "line": line,
    }


def _beside_the_code(error: BaseException, task: Task) -> str:
    """Return where a file that was not found lies from the entry file, if the submission holds one of its name."""
    if not isinstance(error, FileNotFoundError) or not isinstance(error.filename, str):
        return ""
    name = Path(error.filename).name
    found = next((path for path in task.submission.rglob("*") if path.name == name and path.is_file()), None)
    return os.path.relpath(found, (task.submission / task.file).parent) if found else ""


def _is_about_samples(error: BaseException, style: data_loaders.Style) -> bool:
    """Return whether an error looks as if the code expected the loaders' batches in the other form."""
    phrases = _NOT_DICTS if style == "dict" else _NOT_PAIRS
    return isinstance(error, TypeError | ValueError | KeyError | AttributeError) and any(
        phrase in str(error)[:2000] for phrase in phrases
    )


def _error_class(error: BaseException, task: Task) -> str:
    if isinstance(error, SyntaxError) and str(error.filename or "").startswith(f"{task.submission}/"):
        return ErrorClass.SYNTAX_ERROR
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return ErrorClass.OUT_OF_MEMORY
    if isinstance(error, OSError):
        return _ERRNO_CLASSES.get(error.errno or 0, ErrorClass.EXCEPTION)
    text = str(error)[:500] if isinstance(error, RuntimeError) else ""
    known = (error_class for phrase, error_class in _PHRASES if phrase in text)
    return next(known, ErrorClass.CUDA_REQUIRED if insists_on_gpu(error) else ErrorClass.EXCEPTION)


def _own_line(error: BaseException, submission: Path) -> tuple[str, int]:
    """The innermost line that lies in the participant's own files."""
    root = f"{submission}/"
    if isinstance(error, SyntaxError) and str(error.filename or "").startswith(root):
        return str(error.filename)[len(root) :], error.lineno or 0
    found = ("", 0)
    for frame, line in traceback.walk_tb(error.__traceback__):
        name = frame.f_code.co_filename
        if name.startswith(root):
            found = (name[len(root) :], line)
    return found
