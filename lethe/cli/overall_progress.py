"""One bar over all steps of a command, with the time left; a line every ten seconds where no terminal looks on."""

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TaskProgressColumn, TextColumn
from rich.table import Column
from rich.text import Text

from lethe.cli.output import notes
from lethe.cli.placing import duration_text
from lethe.client.api import JsonObject

SURE_AFTER_S, SURE_FROM = 3.0, 0.01  # before so many seconds and so much progress, a rate is chance
EVERY_S = 10.0
Clock = Callable[[], float]


class TimeLeft:
    """The time that is left, from how fast the later half of the time so far went.

    Steps are weighted by guesses: the later half forgets how long the first ones took.
    """

    def __init__(self) -> None:
        self._times: list[float] = []
        self._shares: list[float] = []

    def note(self, share: float, at: float) -> None:
        """Say how much is done at a time, in seconds of any clock."""
        self._times.append(at)
        self._shares.append(share)

    def seconds(self, at: float) -> float | None:
        """Return the seconds left, None while they are not known."""
        if not self._times or at - self._times[0] < SURE_AFTER_S:
            return None
        middle = (self._times[0] + at) / 2
        gained = self._shares[-1] - self._shares[bisect_right(self._times, middle) - 1]
        known = gained > 0 and self._shares[-1] - self._shares[0] >= SURE_FROM
        return (1.0 - self._shares[-1]) * (at - middle) / gained if known else None


class OverallProgress:
    """Shows how far a command with several steps is.

    steps: their names, in order, each with its share of the time, in any unit. look: called now and then, where the
    command itself does not say how far its first step is; returns the share done and words. quiet: nothing is shown.
    """

    def __init__(
        self,
        steps: Mapping[str, float],
        *,
        console: Console = notes,
        look: Callable[[], tuple[float, str]] | None = None,
        quiet: bool = False,
        every_s: float = EVERY_S,
        clock: Clock = time.monotonic,
    ) -> None:
        self._steps, self._console, self._clock = dict(steps), console, clock
        self._left, self._done, self._words = TimeLeft(), 0.0, next(iter(steps))
        self._in_lines = not quiet and not console.is_terminal
        self._look = None if quiet else look
        self._every_s, self._over = every_s, threading.Event()
        self._beside = threading.Thread(target=self._look_and_print, daemon=True)
        words = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, ratio=1))
        left = _LeftColumn(self._left_text)
        columns = (words, BarColumn(), TaskProgressColumn(), left)
        shown = not quiet and console.is_terminal
        self._bars = Progress(*columns, console=console, transient=True, expand=True, disable=not shown)
        self._task = self._bars.add_task(self._words, total=1.0)

    def __enter__(self) -> Self:
        self._left.note(0.0, self._clock())
        self._bars.start()
        if self._in_lines or self._look:
            self._beside.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._bars.stop()
        if self._beside.is_alive():
            self._beside.join()

    def show(self, step: str, share: float, words: str = "") -> None:
        """Say that so much of a step is done, 0 to 1, and all steps before it; what was done before stays done."""
        names = list(self._steps)
        before = sum(self._steps[name] for name in names[: names.index(step)])
        done = (before + self._steps[step] * min(max(share, 0.0), 1.0)) / sum(self._steps.values())
        self._done, self._words = max(self._done, done), words or step
        self._left.note(self._done, self._clock())
        self._bars.update(self._task, description=self._words, completed=self._done)

    def line(self) -> str:
        """Return how far it is, in one line."""
        return f"{100 * self._done:3.0f} %, {self._left_text()}: {self._words}"

    def _left_text(self) -> str:
        seconds = self._left.seconds(self._clock())
        return "time left not known yet" if seconds is None else f"about {duration_text(seconds)} left"

    def _look_and_print(self) -> None:
        while not self._over.wait(self._every_s):
            if self._look:
                self.show(next(iter(self._steps)), *self._look())
            if self._in_lines:
                self._console.print(self.line(), markup=False, highlight=False, soft_wrap=True)


def preparation_so_far(splits: Sequence[JsonObject]) -> tuple[float, str]:
    """Return the share of the work on all splits that is done, and what is done now, in words."""
    words = [
        f"{split['visibility']} split: {split['stage'] or 'waiting for a worker'}"
        for split in splits
        if split["state"] != "ready"
    ]
    return sum(split["share_done"] for split in splits) / max(len(splits), 1), "; ".join(
        words
    ) or "both splits are ready"


class _LeftColumn(TextColumn):
    """The time left, as it is when the bar is drawn."""

    def __init__(self, text: Callable[[], str]) -> None:
        super().__init__("")
        self._text = text

    def render(self, task: Task) -> Text:
        return Text(self._text())
