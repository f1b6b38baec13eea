"""Takes the first model that counts of a program, which ends there: what it would do afterwards is other runs' part.

What counts is decided by what the program writes, never by its text: complete files with the original's tensors.

- A file that is named as the competition names them, or `unlearn...<number>`, is the run's model.
- Other files with numbers count by series: with the second file of one name and another number, the first of them is
  the run's model.
- Where a name says that training leaves the file on its way (an epoch, a step, the best), it shows only whether the
  program has begun again with the original model. Then the last model that was written before is the run's.
- A program that comes to its end has the first member of its archive, else the one file that it wrote.
"""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from lethe.runtime.entry import RunFault
from lethe.runtime.error_classes import ErrorClass
from lethe.runtime.weights_layout import WeightsLayout
from sandbox.guest.notebook.checkpoints import NoTensors, NotTorchFile, cast_in_words, model_pieces, read_state_dict
from sandbox.guest.notebook.files import (
    NUMBER,
    ON_THE_WAY,
    archive_members,
    choose,
    has_suffix,
    is_usual,
    listed_files,
    model_files,
    read_member,
    series_of,
    stamp_of,
)

REPORTED_AFTER = (3, 10)  # files without one that counts
Pieces = list[memoryview]


class OnModel(Protocol):
    """What is done with a model that counts. is_late: it was written before the file that shows that it counts."""

    def __call__(self, path: Path, pieces: Pieces, *, is_late: bool) -> None: ...


def names_of_series(path: Path) -> str:
    """Return the pattern of the names that differ from this file's by their numbers."""
    return "[0-9]+".join(map(re.escape, NUMBER.split(path.name))) + "$"


@dataclass
class Held:
    """The newest file of a series. starts: how often the program had begun when it was written."""

    path: Path
    pieces: Pieces
    starts: int


@dataclass
class FirstModel:
    """The files of one program's run.

    counting: names that are known to count, and no others. uncounted: files that have not counted, and why.
    """

    layout: WeightsLayout
    folders: Sequence[Path]
    on_model: OnModel
    on_fault: Callable[[RunFault], None]
    tell: Callable[[str], None] = print
    counting: re.Pattern[str] | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)
    uncounted: dict[str, str] = field(default_factory=dict)
    _starts: int = 0
    _seen: dict[Path, tuple[int, int]] = field(default_factory=dict)
    _series: dict[str, Held] = field(default_factory=dict)

    def begun(self) -> None:
        """Take notice that the program holds the original model again."""
        self._starts += 1

    def written(self, path: Path) -> None:
        """Look at a file that is complete."""
        with self.lock:
            self._seen[path] = stamp_of(path)
            if not has_suffix(path):
                return
            if self._counts_at_once(path):
                self._take(path)
            elif self.counting is None:
                self._take_of_series(path)

    def changed_files(self) -> Iterator[Path]:
        """Yield the files that are not as they were when they were last looked at."""
        return (path for path in model_files(self.folders) if self._seen.get(path) != stamp_of(path))

    def read(self, path: Path) -> None:
        """Nothing is ever removed here."""

    def at_the_end(self, *, has_function: bool) -> None:
        """Take the model of a program that has come to its end, if it has written one.

        has_function: it has defined a function to call in place of a lone file that may be anything.
        """
        with self.lock:
            files, members = list(model_files(self.folders)), archive_members(self.folders)
            if members is not None:
                candidates = listed_files(members, files)
            elif usual := [path for path in files if is_usual(path)]:
                candidates = usual
            else:
                models = [path for path in files if self._may_be_a_model(path)]
                candidates = [] if has_function or len(models) > 1 else models
            for path in choose(candidates, wanted=1):
                self._take(path)

    def uncounted_in_words(self) -> list[str]:
        """Return the files that have not counted, each with why."""
        return [f"{name} ({why})" for name, why in self.uncounted.items()]

    def _counts_at_once(self, path: Path) -> bool:
        if self.counting is not None:
            return self.counting.search(path.name) is not None
        return is_usual(path)

    def _take(self, path: Path) -> None:
        try:
            self.on_model(path, self._pieces(path), is_late=False)
        except NoTensors:
            self._leave(path, "holds no tensors")
        except NotTorchFile as error:
            self.tell(f"[lethe] {path} cannot be taken as a model: {error}")
            self.on_fault(RunFault(ErrorClass.UNREADABLE_CHECKPOINT))
        except RunFault as fault:
            self.on_fault(fault)

    def _take_of_series(self, path: Path) -> None:
        try:
            pieces = self._pieces(path)
        except (RunFault, NotTorchFile) as error:
            self._leave(path, why_not(error))  # something else that the program keeps
            return
        if not NUMBER.search(path.name):
            self._leave(path, "has no number in its name")
            return
        counts = self._shown_by(path)
        if counts is not None:
            self.on_model(counts.path, counts.pieces, is_late=True)
        self._series.pop(series_of(path), None)  # so that the newest is the last
        self._series[series_of(path)] = Held(path, pieces, self._starts)
        self._leave(path, "is the only one of its name so far, or was left by training on its way")

    def _shown_by(self, path: Path) -> Held | None:
        """Return the model that a further file of a series shows to be the run's."""
        held = self._series.get(series_of(path))
        if held is None or held.path == path:
            return None
        if not ON_THE_WAY.search(path.name):
            return held
        return next((one for one in reversed(self._series.values()) if one.starts < self._starts), None)

    def _leave(self, path: Path, why: str) -> None:
        self.uncounted[path.name] = why
        if len(self.uncounted) in REPORTED_AFTER:
            self.tell(f"[lethe] no file counts as the run's model yet; written: {', '.join(self.uncounted)}")

    def _may_be_a_model(self, path: Path) -> bool:
        """Return whether a file is a model, whole or broken."""
        try:
            self._pieces(path)
        except NoTensors:
            return False
        except (RunFault, NotTorchFile) as error:
            self.uncounted[path.name] = why_not(error)
        else:
            self.uncounted.setdefault(path.name, "may be the run's model")
        return True

    def _pieces(self, path: Path) -> Pieces:
        try:
            content = path if path.is_file() else read_member(self.folders, path)
        except OSError as error:
            raise NotTorchFile(str(error)) from error
        pieces, cast = model_pieces(read_state_dict(content), self.layout)
        if cast:
            self.tell(f"[lethe] {path.name}: {cast_in_words(cast)}.")
        return pieces


def why_not(error: RunFault | NotTorchFile) -> str:
    """Return why a file is no model of this competition, for its author."""
    if isinstance(error, NotTorchFile):
        return str(error)[:80]
    tensor = error.detail.get("tensor")
    return f"{error.detail.get('kind')}: {tensor}" if tensor else "has a tensor that the original lacks"
