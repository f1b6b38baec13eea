"""How commands print: tables, facts, JSON, progress; what strangers wrote is shown, and steers no terminal.

Progress is one bar over all steps of a command, with the time left; a line every ten seconds where no terminal looks
on.
"""

import codecs
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, Task, TaskProgressColumn, TextColumn
from rich.segment import Segment
from rich.table import Column as RichColumn
from rich.table import Table
from rich.text import Text

from lethe.client.api import ApiError, JsonObject, LetheClient


def stage_text(submission: JsonObject) -> str:
    """Return the stage, with the class of the failure; of one to several tasks, with each task that failed."""
    parts = submission.get("parts") or []
    failed = [f"{part['task']}: {part['failure']['error_class']}" for part in parts if part["failure"]]
    if failed:
        return f"{submission['stage']}, failed in {len(failed)} of {len(parts)} tasks ({', '.join(failed)})"
    failure = submission["failure"] or {}
    return f"{submission['stage']}: {failure['error_class']}" if failure else str(submission["stage"])


def public_score(submission: JsonObject) -> float | None:
    """Return the public score; of one to several tasks, what its scores come to."""
    score = submission["score"]
    return score["final_score"] if score else submission.get("combined_score")


def get_placing(client: LetheClient, submission: JsonObject) -> JsonObject:
    """Return `share_of_oracle`, `rank` and `teams` of a scored submission; nothing for one without a score.

    rank: of its team's best submission on the public board; None where the team is on none.
    """
    if not submission["score"]:
        return {}
    try:
        board = client.leaderboard(submission["competition"])
    except ApiError:  # a board that the caller may not see takes nothing from the submission's own score
        return {}
    oracle = (board["oracle"] or {}).get("score")
    ranks = [row["rank"] for row in board["rows"] if row["team"] == submission["team"]]
    return {
        "share_of_oracle": submission["score"]["final_score"] / oracle if oracle else None,
        "rank": ranks[0] if ranks else None,
        "teams": board["teams"],
    }


def time_taken_s(submission: JsonObject) -> float | None:
    """Return the seconds from the upload to the score, None while there is none."""
    if not submission["score"]:
        return None
    received, scored = (
        datetime.fromisoformat(text) for text in (submission["received_at"], submission["score"]["computed_at"])
    )
    return (scored - received).total_seconds()


def share_text(share: float | None) -> str | None:
    return None if share is None else f"{share:.1%}"


def rank_text(placing: JsonObject) -> str | None:
    return f"{placing['rank']} of {placing['teams']}" if placing.get("rank") else None


def duration_text(seconds: float | None) -> str | None:
    """Return seconds as a person says them: 42 s, 3 min 05 s, 2 h 10 min."""
    if seconds is None:
        return None
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


Column = str | Callable[[Any], object]
Columns = dict[str, Column]
WHOLE = frozenset(
    {"id", "action", "subject", "received"}
)  # to copy from: where space is short, other columns are narrowed
MIN_WIDTH = 8  # of a column of words


class Terminal(Console):
    """Rich removes five control characters; ESC and C1, which begin commands, are not among them."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield what is printed, with every character that a terminal obeys written as an escape."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control or text.isprintable() else Segment(_escaped(text), style)


def _escaped(text: str) -> str:
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


console = Terminal()
notes = Terminal(stderr=True)


def accept_any_letter() -> None:
    """Let a terminal that is not UTF-8 show a ? for a letter that it lacks, in place of an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def print_json(value: Any) -> None:
    """Print JSON: as it is on UTF-8, else with escapes, so that nothing of it is lost."""
    is_utf8 = codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=not is_utf8) + "\n")


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Print a table; columns whose name ends in # hold numbers: aligned to the right, whole where there is room."""
    filled = list(rows)
    if not filled:
        console.print(empty)
        return
    fits = _width_with_whole_numbers(columns, filled) <= console.width
    table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for column in columns:
        name, is_number = column.rstrip("#"), column.endswith("#")  # where two have one name, the second ends in ##
        stays = name in WHOLE or (is_number and fits)
        table.add_column(name, justify="right" if is_number else "left", no_wrap=stays)
    for row in filled:
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))  # not as markup: strangers' words
    console.print(table)


def _width_with_whole_numbers(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> int:
    """Return how wide a table is in which numbers stay whole, and words have the room that they need at least."""
    cells = ([column.rstrip("#"), *(str(row[place]) for row in rows)] for place, column in enumerate(columns))
    widest = [max(len(line) for cell in each for line in cell.split("\n")) for each in cells]
    stay = [width if column.endswith("#") else MIN_WIDTH for column, width in zip(columns, widest, strict=True)]
    return sum(stay) + 2 * (len(stay) - 1)


def print_rows(found: Iterable[Any], columns: Mapping[str, Column], *, empty: str) -> None:
    """Print JSON objects as a table. columns: by heading a key, or what makes the cell; `..._at` is a timestamp."""
    rows = ([_cell(row, column) for column in columns.values()] for row in found)
    print_table("", list(columns), rows, empty=empty)


def _cell(row: Any, column: Column) -> object:
    if not isinstance(column, str):
        return column(row)
    return local_time(row[column]) if column.endswith("_at") else row[column]


def print_notes(texts: Sequence[str]) -> None:
    """Print what may make a submission fail."""
    for text in texts:
        console.print(f"Note: {text}", style="yellow", markup=False, highlight=False)


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Print names and values in two columns, leaving out what has no value."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in facts:
        if value not in (None, ""):
            table.add_row(name, Text(str(value)))
    console.print(table)


def local_time(text: str | None) -> str:
    """Return a timestamp of the server's in the reader's own zone."""
    if not text:
        return ""
    try:
        return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M %Z")
    except OverflowError:  # in the last hours of the year 9999
        return text


def score_text(score: float | None) -> str:
    return "" if score is None else f"{score:.5f}"  # as many digits as public scores have


def write_json(document: Any, file: Path | None) -> None:
    """Print the document, or write it to the file, whose readers see the old or the new one.

    Raises typer.BadParameter if the file cannot be written.
    """
    text = json.dumps(document, indent=2, allow_nan=False)
    if file is None:
        typer.echo(text)
        return
    try:
        if file.exists() and not file.is_file():  # a device or a pipe
            file.write_text(text + "\n", encoding="utf-8")
            return
        beside = file.resolve().with_name(f".{file.name}.{os.getpid()}.part")
        beside.write_text(text + "\n", encoding="utf-8")
        beside.replace(file.resolve())
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be written: {error.strerror}") from error


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
        words = TextColumn("{task.description}", markup=False, table_column=RichColumn(no_wrap=True, ratio=1))
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
