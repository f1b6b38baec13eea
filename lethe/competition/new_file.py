"""What a competition that is made now must not say, though files that were taken earlier may and are still read.

The one check of `lethe competition validate`, `create` and `update`, the API and the pages.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from lethe.competition.estimates import describe_excess
from lethe.competition.file import CompetitionFile, Training
from lethe.competition.sections import Limits
from lethe.competition.splits_section import WEAKEST_SEED_BITS, ForgetSet
from lethe.errors import InvalidCompetitionFile, Violation

MAX_FORGET_FRACTION = 0.5
MAX_RATES = {"sgd": 10.0, "adam": 1.0, "adamw": 1.0}
MIN_RUN_S = 0.1  # that starting a run takes, before its first line


def require_new(file: CompetitionFile, *, at: datetime, source: str = "competition file") -> None:
    """Raise InvalidCompetitionFile naming each value with which no competition can be held.

    at: now, with its time zone.
    """
    wrong = []
    if file.closes_at <= at:
        past = f"is past: nobody could submit. It is {at.isoformat(timespec='minutes')} now"
        wrong.append(Violation("closes_at", past, file.closes_at.isoformat()))
    for place, task in enumerate(file.tasks):
        wrong += [replace(each, field=f"tasks.{place}.{each.field}") for each in _of_evaluated(task)]
    if not file.tasks:
        wrong += _of_evaluated(file)
    if wrong:
        raise InvalidCompetitionFile.from_violations(tuple(wrong), source=source)


def _of_evaluated(file: CompetitionFile) -> Iterator[Violation]:
    if not file.weak_seed and file.splits.seed.bit_length() < WEAKEST_SEED_BITS:
        yield Violation(
            "splits.seed",
            f"has fewer than {WEAKEST_SEED_BITS} bits, so it can be guessed: leave it out, or say weak_seed = true",
        )
    if excess := describe_excess(file.network.name, file.network.options):
        yield Violation("network.options", excess, file.network.name)
    yield from _of_training(file.training)
    yield from _of_forget_set(file.splits.forget)
    yield from limit_mistakes(file.limits, n_models=file.n_models)


def limit_mistakes(limits: Limits, *, n_models: int) -> Iterator[Violation]:
    """Yield each limit that leaves a run no time to start in."""
    for name, runs in (("wall_time_s", n_models), ("run_wall_time_s", 1)):
        seconds = getattr(limits, name)
        if seconds is not None and seconds < runs * MIN_RUN_S:
            of_all = f"is for all {runs} runs together, {seconds / runs:.2g} s each; " if runs > 1 else ""
            allowed = f"{of_all}must be at least {runs * MIN_RUN_S:.3g}: starting a run alone takes {MIN_RUN_S} s"
            yield Violation(f"limits.{name}", allowed, f"{seconds:g}")


def _of_training(training: Training) -> Iterator[Violation]:
    largest = MAX_RATES[training.optimizer]
    if training.learning_rate > largest:
        allowed = f"must be at most {largest:g} with {training.optimizer}: no network learns in larger steps"
        yield Violation("training.learning_rate", allowed, repr(training.learning_rate))
    elif training.learning_rate * training.weight_decay >= 1:
        allowed = "times learning_rate must be below 1: each step would take away all weights; below "
        yield Violation(
            "training.weight_decay", f"{allowed}{1 / training.learning_rate:g}", repr(training.weight_decay)
        )


def _of_forget_set(forget: ForgetSet) -> Iterator[Violation]:
    if forget.by not in ("class", "ids") and forget.fraction > MAX_FORGET_FRACTION:
        allowed = (
            f"must be at most {MAX_FORGET_FRACTION}: it is the share of the training set to forget, and more would "
            "be forgotten than kept"
        )
        yield Violation("splits.forget.fraction", allowed, repr(forget.fraction))
    for name in forget.class_skew:
        if not name.isdigit():
            allowed = "names a class by its number, from 0; `lethe competition validate` lists them with their names"
            yield Violation(f"splits.forget.class_skew.{name}", allowed, repr(name))
