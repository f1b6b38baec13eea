"""One bar over all steps of a command, with the time left; a line every ten seconds where no terminal looks on."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TaskProgressColumn, TextColumn
from rich.table import Column
from rich.text import Text

from lethe.cli.output import notes
from lethe.cli.submission_text import duration_text
from lethe.client.api import JsonObject

SURE_AFTER_S, SURE_FROM = 3.0, 0.01  # before so many seconds and so much progress, a rate is chance
EVERY_S = 10.0
Clock = Callable[[], float]


class OverallProgress:
    """Shows how far a command with several steps is.

    steps: their names, in order, each with its share of the time, in any unit. The time left is as if these were right
    and the rest went as fast as what this command has done so far. look: called now and then, where the command itself
    does not say how far its first step is; returns the share done and words. quiet: nothing is shown.
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
        self._done, self._words = 0.0, next(iter(steps))
        self._began: tuple[float, float] | None = None  # the first share that was said, and when
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
        self._began = self._began or (self._done, self._clock())
        self._bars.update(self._task, description=self._words, completed=self._done)

    def line(self) -> str:
        """Return how far it is, in one line."""
        return f"{100 * self._done:3.0f} %, {self._left_text()}: {self._words}"

    def _left_text(self) -> str:
        share, at = self._began or (0.0, self._clock())
        gained, took_s = self._done - share, self._clock() - at
        if took_s < SURE_AFTER_S or gained < SURE_FROM:
            return "time left not known yet"
        return f"about {duration_text((1.0 - self._done) * took_s / gained)} left"

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
    return sum(split["share_done"] for split in splits) / max(len(splits), 1), "; ".join(words) or "ready"


class _LeftColumn(TextColumn):
    """The time left, as it is when the bar is drawn."""

    def __init__(self, text: Callable[[], str]) -> None:
        super().__init__("")
        self._text = text

    def render(self, task: Task) -> Text:
        return Text(self._text())
