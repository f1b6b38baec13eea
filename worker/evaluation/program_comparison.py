"""Whether the later models of a notebook's program are made like its first one, which is all that a run sees of it.

Each run runs the program by itself until its first model. What the program would do differently in later models cannot
be seen there, so it is looked for once, on the public sample, and its author is told.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from safetensors.numpy import load

from lethe.runtime.error_classes import Blame, ErrorClass
from lethe.runtime.original_filenames import WARNING
from sandbox.frame_reader import NotebookRun
from sandbox.guest.frame_format import AGAIN, FIRST, SECOND
from sandbox.run_request import RunRequest, RunResult
from sandbox.verdict import Verdict

MODELS = 3
REFUSED = frozenset({ErrorClass.REWRITTEN_MODEL, ErrorClass.UNORDERED_MODELS, ErrorClass.OTHER_MODELS})
TOLERANCE = 1e-3  # of the largest weight, where a device does not repeat itself to the bit
DEPENDS = (
    f"{WARNING} Later models of this notebook do not come out like its first one, although all random numbers are the "
    "same: they depend on earlier models, or on their number. Here every run is the first model of a process of its "
    "own. If later models are meant to differ, let the whole notebook run once: # lethe: mode = notebook"
)


@dataclass
class ProgramComparison:
    """What was found. verdict: of a program whose first model is not the one that Kaggle would have taken."""

    notes: list[str] = field(default_factory=list)
    verdict: Verdict | None = None


def is_compared(request: RunRequest) -> bool:
    """Return whether the program writes models of its own, so that there is a second one to look at."""
    return request.entry_point.program == "saves"


def compare_program(
    run: Callable[[RunRequest], RunResult], request: RunRequest, *, first: RunResult, run_limit_s: float, setup_s: float
) -> ProgramComparison:
    """Run the program to its second model, again with the same random numbers, and compare with `first`."""
    models: dict[int, bytes] = {}
    times_s: list[float] = [time.monotonic()]

    def take(slot: int, weights: bytes) -> None:
        times_s.append(time.monotonic())
        models[slot] = weights

    longer = replace(request, original=None, notebook=NotebookRun(MODELS, take), wall_time_s=4 * run_limit_s + setup_s)
    result = run(longer)
    found = ProgramComparison()
    if result.verdict.fault in {Blame.HOST, Blame.STOPPED} or result.verdict.error_class in REFUSED:
        found.verdict = result.verdict
        return found
    found.notes.append(_in_words(first, times_s, run_limit_s=run_limit_s))
    if len(models) < MODELS:
        found.notes.append(_not_compared(result))
    elif not equal_models(models[SECOND], models[AGAIN]):
        found.notes.append(DEPENDS)
    if FIRST in models and first.weights is not None and not equal_models(models[FIRST], first.weights):
        found.notes.append(f"{WARNING} Two runs with the same seeds gave different models.")
    return found


def equal_models(first: bytes, second: bytes, *, tolerance: float = TOLERANCE) -> bool:
    """Return whether two safetensors files hold the same weights, but for what a device may round differently."""
    if first == second:
        return True
    others = load(second)
    pairs = ((value, others[name]) for name, value in load(first).items())
    return all(np.allclose(a, b, rtol=0, atol=tolerance * float(np.abs(a).max(initial=0))) for a, b in pairs)


def _in_words(first: RunResult, times_s: list[float], *, run_limit_s: float) -> str:
    text = (
        "[lethe] Each run runs this notebook until its first model, with its seeds mixed with the run's. "
        f"A run took {first.wall_time_s:.1f} s of {run_limit_s:g} s"
    )
    if len(times_s) <= SECOND + 1:
        return f"{text}."
    to_first, to_second = times_s[FIRST + 1] - times_s[0], times_s[SECOND + 1] - times_s[FIRST + 1]
    share = max(0.0, 1 - to_second / to_first)
    return f"{text}, about {share:.0%} of it before the first model's own part."


def _not_compared(result: RunResult) -> str:
    if result.verdict.error_class == ErrorClass.ONE_MODEL:
        return "[lethe] The notebook writes one model."
    return f"{WARNING} The notebook's second model could not be looked at: {result.verdict.message or 'no model'}"
