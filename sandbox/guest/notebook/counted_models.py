"""Which of the models that a notebook writes count: the first one, where a run is one model of many; else all of them.

What counts is decided by what the program writes, never by its text: complete files with the original's tensors.

docs/participants/kaggle.md has the rules: names that count at once, series of names with numbers, files that training
leaves on its way, the archive.
"""

import copy
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor, nn

from lethe.runtime.entry import RunFault
from lethe.runtime.error_classes import ErrorClass
from lethe.runtime.notebook_shell import report
from lethe.runtime.weights_layout import WeightsLayout
from sandbox.guest.frame_format import encode_checkpoint_head, encode_choice
from sandbox.guest.harness import write_all
from sandbox.guest.notebook.model_files import (
    FOLDERS,
    GONE,
    NO_TENSORS,
    NotTorchFile,
    Pieces,
    Stamp,
    WrittenModels,
    archive_members,
    files_present,
    has_suffix,
    hook,
    stamp_of,
    target_path,
)

USUAL_NAME = re.compile(r"unlearn.*\d", re.IGNORECASE)
NUMBER = re.compile(r"\d+")
ON_THE_WAY = re.compile(  # what training leaves before its end, or has before its beginning
    r"(?<![a-z])(epochs?|ep|steps?|iter(ation)?s?|batch|best|last|te?mp|backup|stage|phase|round|fold|part|init|teacher"
    r"|student|baseline|original)(?![a-z])",
    re.IGNORECASE,
)
OnModel = Callable[[Path, Pieces], None]
OnFault = Callable[[RunFault], NoReturn]
NOTE = b"Lethe has taken up this model; its bytes are no longer here.\n"
ROOM_SHARE = 0.4  # of the scratch, for models that the notebook still sees; an archive of them takes as much again


class FirstModel(WrittenModels):
    """Takes the first model that counts of a program, which ends there: the rest is other runs' part.

    counting: names that are known to count, and no others. uncounted: files that have not counted, and why.
    """

    def __init__(
        self, layout: WeightsLayout, on_model: OnModel, on_fault: OnFault, *, counting: re.Pattern[str] | None = None
    ) -> None:
        super().__init__(layout)
        self._on_model, self._on_fault, self._counting = on_model, on_fault, counting
        self.uncounted: dict[Path, str] = {}
        self._starts = 0
        self._series: dict[str, tuple[Path, Pieces, int]] = {}  # the newest file of each, and the starts before it

    def notice_starts(self, original: Mapping[str, Tensor]) -> None:
        """Notice from now on when the program holds the original model again: loaded into a network, or copied."""
        marks = [name for name, tensor in original.items() if tensor.is_floating_point()]

        def done(*values: object, **_options: object) -> None:
            for value in values[:2]:  # what was returned, and what it was done to
                state = value.state_dict() if isinstance(value, nn.Module) else value
                if isinstance(state, Mapping) and marks:
                    self._starts += all(_is_equal(state.get(name), original[name]) for name in (marks[0], marks[-1]))
                    return

        for place, name in ((torch, "load"), (nn.Module, "load_state_dict"), (copy, "deepcopy")):
            hook(place, name, after=done)

    def written(self, path: Path) -> None:
        """Look at a file that is complete."""
        if self._counting is None or self._counting.search(path.name):
            self._consider(path, counts=self._counting is not None or is_usual(path))

    def at_the_end(self, *, has_function: bool) -> None:
        """Take the model of a program that has come to its end, if it has written one.

        has_function: it has defined a function to call in place of a lone file that may be anything.
        """
        candidates = files_listed()
        if candidates is None:
            models = [path for path in files_present() if self.uncounted.get(path) != NO_TENSORS]
            candidates = [] if has_function or len(models) > 1 else models
        for path in choose(candidates, wanted=1):
            self._consider(path, counts=True)

    def _consider(self, path: Path, *, counts: bool) -> None:
        try:
            pieces = self.pieces(path)
        except RunFault as fault:
            self.uncounted[path] = why_not(fault)
            if counts and self.uncounted[path] != NO_TENSORS:
                report(f"{path} cannot be taken as a model: {self.uncounted[path]}")
                self._on_fault(fault)
            return
        if counts:
            self._on_model(path, pieces)
        elif not NUMBER.search(path.name):
            self.uncounted[path] = "has no number in its name"
        else:
            self._consider_series(path, pieces)

    def _consider_series(self, path: Path, pieces: Pieces) -> None:
        before = self._series.get(series_of(path))
        if before is not None and before[0] != path:
            if ON_THE_WAY.search(path.name):  # it shows only whether the program has begun again
                before = next((one for one in reversed(self._series.values()) if one[2] < self._starts), None)
            if before is not None:
                self._on_model(*before[:2])
        self._series.pop(series_of(path), None)  # so that the newest is the last
        self._series[series_of(path)] = path, pieces, self._starts
        self.uncounted[path] = "is the only one of its name so far, or was left by training on its way"


def why_not(fault: RunFault) -> str:
    """Return why a file is no model of this competition, for its author."""
    if isinstance(fault, NotTorchFile):
        return fault.why[:80]
    tensor = fault.detail.get("tensor")
    return f"{fault.detail.get('kind')}: {tensor}" if tensor else "has a tensor that the original lacks"


def _is_equal(value: object, tensor: Tensor) -> bool:
    return isinstance(value, Tensor) and value.shape == tensor.shape and torch.equal(value.to(tensor), tensor)


class AllModels(WrittenModels):
    """Sends the models of a program that runs once, and frees space while the notebook still sees its files.

    A file with the usual name leaves at once; others leave when room is needed or the archive lists them. A file that
    has left may be replaced by a short note of the same name, oldest first, once the folders hold more than they
    should. What a notebook reads back is never replaced. wanted: how many models count.
    """

    def __init__(self, layout: WeightsLayout, frame_fd: int, *, wanted: int) -> None:
        super().__init__(layout)
        self._frame_fd, self._wanted = frame_fd, wanted
        self._sent: dict[Path, tuple[int, Stamp]] = {}  # its number, and what the file was then
        self._read_back: set[Path | None] = set()
        scratch = os.statvfs(FOLDERS[0])
        self._room_bytes = int(ROOM_SHARE * scratch.f_blocks * scratch.f_frsize)
        hook(torch, "load", after=self._read)

    def _read(self, _value: object, *arguments: object, **options: object) -> None:
        self._read_back.add(target_path(options.get("f", (*arguments, None)[0])))

    def written(self, path: Path) -> None:
        """Send a file that is complete, if it is named as a model; free space."""
        if is_usual(path):
            self._can_send(path)
        files = sorted(files_present(), key=stamp_of)
        used = sum(stamp_of(path)[1] for path in files)
        for old in files[:-1]:  # a notebook may look at what it has just written
            if used <= self._room_bytes:
                return
            if old not in self._read_back and not is_note(old) and self._can_send(old):
                used -= stamp_of(old)[1]
                note = old.with_name(f".{old.name}.note")
                note.write_bytes(NOTE)
                note.replace(old)  # a process that reads the old file keeps it until it is done

    def finish(self) -> None:
        """Choose the models that count, those of the archive first, and end the stream.

        Raises RunFault if there are too few.
        """
        files, listed = list(files_present()), files_listed(*self._sent)
        chosen = choose(of_one_kind(files, wanted=self._wanted) if listed is None else listed, wanted=self._wanted)
        if len(chosen) < self._wanted:
            raise RunFault(ErrorClass.TOO_FEW_CHECKPOINTS, written=[path.name for path in files])
        write_all(self._frame_fd, encode_choice([self._send(path) for path in chosen]))

    def _can_send(self, path: Path) -> bool:
        try:
            self._send(path)
        except RunFault as fault:
            report(f"{path} cannot be taken as a model: {why_not(fault)}")
            return False
        return True

    def _send(self, path: Path) -> int:
        """Send the file's model to the host, unless it was sent. Return its number. Raises RunFault."""
        stamp = stamp_of(path)
        slot, sent = self._sent.get(path, (len(self._sent), None))
        if sent is not None and (stamp in (sent, GONE) or is_note(path)):
            return slot
        send_model(self._frame_fd, slot, self.layout, self.pieces(path))
        self._sent[path] = slot, stamp
        return slot


def send_model(frame_fd: int, slot: int, layout: WeightsLayout, pieces: Pieces) -> None:
    """Send one of a run's models to the host."""
    write_all(frame_fd, encode_checkpoint_head(slot) + layout.header)
    for piece in pieces:
        write_all(frame_fd, piece)


def is_note(path: Path) -> bool:
    """Return whether a note stands where the notebook wrote a model."""
    return stamp_of(path)[1] == len(NOTE) and path.read_bytes() == NOTE


def files_listed(*known: Path) -> list[Path] | None:
    """Return the models that the newest submission.zip lists, or None where there is no archive.

    They are found by path, else by name among those that are there or known.
    """
    members = archive_members()
    if members is None:
        return None
    by_path = dict.fromkeys((*known, *files_present()))
    by_name = {path.name: path for path in by_path}
    paths = filter(has_suffix, members)
    found = (path if path in by_path or path.is_file() else by_name.get(path.name, path) for path in paths)
    return list(dict.fromkeys(found))


def is_usual(path: Path) -> bool:
    """Return whether a file is named like a run's model."""
    return USUAL_NAME.search(path.name) is not None and not ON_THE_WAY.search(path.name)


def series_of(path: Path) -> str:
    """Return what files have in common that differ by the numbers in their names."""
    return NUMBER.sub("#", str(path))


def natural(path: Path) -> list[tuple[int, int, str]]:
    """Sort key by which 10 comes after 9."""
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.split(r"(\d+)", str(path))]


def choose(paths: Sequence[Path], *, wanted: int) -> list[Path]:
    """Return the first `wanted` of the files in the order of their numbers; those with the usual name come first."""
    usual = [path for path in paths if is_usual(path)]
    return sorted(usual if len(usual) >= wanted else paths, key=natural)[:wanted]


def of_one_kind(paths: Sequence[Path], *, wanted: int) -> Sequence[Path]:
    """Return the files that count where no archive names them: the usual ones, one series, or exactly so many.

    Else none: which of them count cannot be known.
    """
    usual = [path for path in paths if is_usual(path)]
    if len(usual) >= wanted:
        return usual
    series: dict[str, list[Path]] = {}
    for path in paths:
        if NUMBER.search(path.name):
            series.setdefault(series_of(path), []).append(path)
    complete = [found for found in series.values() if len(found) >= wanted]
    if len(complete) == 1:
        return complete[0]
    return paths if len(paths) == wanted else ()
