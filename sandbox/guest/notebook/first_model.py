"""Takes the first model that counts of a program, which ends there: what it would do afterwards is other runs' part.

A model counts if its file has the name that the competition gives them. A program that names no such file counts by
series: with the second file of one name and another number, the first of them is the run's model.
"""

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lethe.runtime.entry import RunFault
from lethe.runtime.weights_layout import WeightsLayout
from sandbox.guest.notebook.checkpoints import cast_in_words, model_pieces
from sandbox.guest.notebook.files import (
    SUFFIXES,
    USUAL_NAME,
    archive_members,
    choose,
    listed_files,
    model_files,
    read_member,
    stamp_of,
)
from sandbox.guest.notebook.torch_files import NotTorchFile, read_state_dict

NAMED_FILES = (  # what the program's text holds, and which files then count
    (re.compile(rb"unlearned_checkpoint"), re.compile(r"unlearned_checkpoint\D*\d")),
    (re.compile(rb"unlearn\w*[^\n]*\.(pth|pt|ckpt)"), USUAL_NAME),
)
NUMBER = re.compile(r"\d+")
Pieces = list[memoryview]


def counting_names(texts: Sequence[bytes]) -> re.Pattern[str] | None:
    """Return which files count of a program with these texts; None where it names none in the usual way."""
    return next((names for words, names in NAMED_FILES if any(words.search(text) for text in texts)), None)


def names_of_series(path: Path) -> str:
    """Return the pattern of the names that differ from this file's by their numbers."""
    return "[0-9]+".join(map(re.escape, NUMBER.split(path.name))) + "$"


@dataclass
class FirstModel:
    """The files of one program's run. on_model: what is done with a model that counts.

    counting: the names that count; None goes by series.
    """

    layout: WeightsLayout
    folders: Sequence[Path]
    counting: re.Pattern[str] | None
    on_model: Callable[[Path, Pieces], None]
    on_fault: Callable[[RunFault], None]
    tell: Callable[[str], None] = print
    lock: threading.RLock = field(default_factory=threading.RLock)
    _seen: dict[Path, tuple[int, int]] = field(default_factory=dict)
    _series: dict[str, tuple[Path, Pieces]] = field(default_factory=dict)

    def written(self, path: Path) -> None:
        """Look at a file that is complete."""
        with self.lock:
            self._seen[path] = stamp_of(path)
            if path.suffix not in SUFFIXES:
                return
            if self.counting is None:
                self._take_of_series(path)
            elif self.counting.search(path.name):
                self._take(path)

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
            usual = [path for path in files if USUAL_NAME.search(path.name)]
            candidates = usual if members is None else listed_files(members, files)
            if not candidates and not has_function:
                candidates = files
            for path in choose(candidates, wanted=1):
                self._take(path)

    def _take(self, path: Path) -> None:
        try:
            self.on_model(path, self._pieces(path))
        except RunFault as fault:
            self.on_fault(fault)

    def _take_of_series(self, path: Path) -> None:
        if not NUMBER.search(path.name):
            return
        series = NUMBER.sub("#", str(path))
        first = self._series.get(series)
        if first is not None and first[0] != path:
            self.on_model(*first)
            return
        try:
            self._series[series] = (path, self._pieces(path))
        except RunFault:
            return  # something else that the program keeps

    def _pieces(self, path: Path) -> Pieces:
        try:
            content = path if path.is_file() else read_member(self.folders, path)
            pieces, cast = model_pieces(read_state_dict(content), self.layout)
        except (NotTorchFile, OSError) as error:
            self.tell(f"[lethe] {path} cannot be taken as a model: {error}")
            raise RunFault("unreadable-checkpoint") from error
        if cast:
            self.tell(f"[lethe] {os.path.basename(path)}: {cast_in_words(cast)}.")  # noqa: PTH119
        return pieces
