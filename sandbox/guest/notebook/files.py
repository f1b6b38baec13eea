"""Reads the models that a notebook writes, as they appear, and frees space while the notebook still sees its files.

A checkpoint that is named as the competition names them leaves at once; other files leave when room is needed or the
notebook's archive lists them. A file that has left may be replaced by a short note of the same name, oldest first, once
the folders hold more than they should. What a notebook reads back is never replaced.
"""

import os
import re
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lethe.runtime.entry import RunFault
from lethe.runtime.error_classes import ErrorClass
from lethe.runtime.weights_layout import WeightsLayout
from sandbox.guest.frame_format import encode_checkpoint_head, encode_choice
from sandbox.guest.harness import write_all
from sandbox.guest.notebook.checkpoints import Casts, NotTorchFile, cast_in_words, model_pieces, read_state_dict

SUFFIXES = frozenset({".pth", ".pt", ".ckpt", ".pkl", ".bin", ".tar", ".th", ".model", ".weights"})
USUAL_NAME = re.compile(r"unlearn.*\d", re.IGNORECASE)
NUMBER = re.compile(r"\d+")
ON_THE_WAY = re.compile(  # what training leaves before its end, or has before its beginning
    r"(?<![a-z])(epochs?|ep|steps?|iter(ation)?s?|batch|best|last|te?mp|backup|stage|phase|round|fold|part|init|teacher"
    r"|student|baseline|original)(?![a-z])",
    re.IGNORECASE,
)
ARCHIVE = "submission.zip"
NOTE = b"Lethe has taken up this model; its bytes are no longer here.\n"
NEWEST_KEPT = 1  # of the files on the disk, so that a notebook can look at what it has just written


@dataclass
class Known:
    """A file that was seen: what it was when it was last read, and whether a note stands in its place."""

    slot: int = -1  # -1: not read
    stamp: tuple[int, int] = (0, 0)
    is_note: bool = False
    refusal: RunFault | None = None


@dataclass
class CheckpointTaker:
    """The files of one notebook's run.

    wanted: how many models count. room_bytes: what the folders may hold before files are replaced by notes.
    """

    layout: WeightsLayout
    frame_fd: int
    wanted: int
    folders: tuple[Path, ...]
    room_bytes: int
    tell: Callable[[str], None] = print
    known: dict[Path, Known] = field(default_factory=dict)
    read_back: set[Path] = field(default_factory=set)
    slots: int = 0
    told_cast: bool = False
    lock: threading.RLock = field(default_factory=threading.RLock)

    def written(self, path: Path) -> None:
        """Look at a file that was just written: read it if it is named as a checkpoint; free space."""
        with self.lock:
            if self.is_ours(path):
                if is_usual(path):
                    self._take(path)
                self.make_room()

    def is_ours(self, path: Path) -> bool:
        return has_suffix(path) and any(folder in path.parents for folder in self.folders)

    def read(self, path: Path) -> None:
        """Keep a file that the notebook reads back. Raises RuntimeError if a note stands in its place."""
        if self.is_note(path):
            raise RuntimeError(f"{path} was already evaluated and is no longer on the disk")
        self.read_back.add(path)

    def begun(self) -> None:
        """The archive decides here."""

    def is_note(self, path: Path) -> bool:
        """Return whether a note stands where the notebook wrote a model."""
        known = self.known.get(path)
        return known is not None and known.is_note and stamp_of(path) == known.stamp

    def changed_files(self) -> Iterator[Path]:
        """Yield the files that are not as they were read."""
        for path in self._files():
            known = self.known.get(path)
            if known is None or known.stamp != stamp_of(path):
                yield path

    def make_room(self) -> None:
        """Replace files by notes, the oldest first, while the folders hold more than they should."""
        files = sorted(self._files(), key=stamp_of)
        used = sum(stamp_of(path)[1] for path in files)
        newest = len(files) - NEWEST_KEPT
        for path in files[: newest if used <= 2 * self.room_bytes else len(files)]:
            if used <= self.room_bytes:
                return
            if path in self.read_back or self.is_note(path):
                continue
            if self._is_taken(path) or self._take(path):
                used -= stamp_of(path)[1]
                self._leave_note(path)

    def finish(self) -> None:
        """Choose the models that count, those of the archive first, and end the stream.

        Raises RunFault if there are too few.
        """
        wanted = self.wanted
        with self.lock:
            members = archive_members(self.folders)
            files = list(self._files())
            candidates = of_one_kind(files, wanted=wanted) if members is None else listed_files(members, self._all())
            chosen = choose(candidates, wanted=wanted)
            if len(chosen) < wanted:
                raise RunFault(ErrorClass.TOO_FEW_CHECKPOINTS, written=[path.name for path in files])
            write_all(self.frame_fd, encode_choice([self._slot_for(path) for path in chosen]))

    def _all(self) -> list[Path]:
        return list(dict.fromkeys((*self.known, *self._files())))

    def _slot_for(self, path: Path) -> int:
        known = self.known.get(path)
        if known is not None and known.slot >= 0 and (not path.exists() or known.stamp == stamp_of(path)):
            return known.slot
        if not path.is_file():
            raise RunFault(ErrorClass.TOO_FEW_CHECKPOINTS)
        if not self._take(path):
            raise self.known[path].refusal or RunFault(ErrorClass.UNREADABLE_CHECKPOINT)
        return self.known[path].slot

    def _is_taken(self, path: Path) -> bool:
        known = self.known.get(path)
        return known is not None and known.slot >= 0 and known.stamp == stamp_of(path)

    def _take(self, path: Path) -> bool:
        """Send the file's model to the host. Return False for a file that is none, keeping why."""
        known = self.known.setdefault(path, Known())
        stamp = stamp_of(path)
        if known.slot >= 0 and known.stamp == stamp:
            return True
        known.stamp, known.is_note, known.refusal = stamp, False, None
        try:
            pieces, cast = model_pieces(read_state_dict(path), self.layout)
        except NotTorchFile as error:
            self.tell(f"[lethe] {path} cannot be taken as a model: {error}")
            known.refusal = RunFault(ErrorClass.UNREADABLE_CHECKPOINT)
            return False
        except RunFault as fault:
            known.refusal = fault
            return False
        self._tell_cast(cast, path)
        if known.slot < 0:
            known.slot, self.slots = self.slots, self.slots + 1
        write_all(self.frame_fd, encode_checkpoint_head(known.slot) + self.layout.header)
        for piece in pieces:
            write_all(self.frame_fd, piece)
        return True

    def _tell_cast(self, cast: Casts, path: Path) -> None:
        if cast and not self.told_cast:
            self.told_cast = True
            self.tell(f"[lethe] {path.name}: {cast_in_words(cast)}, as all that follow in this form are.")

    def _leave_note(self, path: Path) -> None:
        note = path.with_name(f".{path.name}.note")
        note.write_bytes(NOTE)
        note.replace(path)  # a process that reads the old file keeps it until it is done
        known = self.known[path]
        known.stamp, known.is_note = stamp_of(path), True

    def _files(self) -> Iterator[Path]:
        return model_files(self.folders)


def has_suffix(path: Path) -> bool:
    """Return whether a file may be a model, by how its name ends."""
    return path.suffix.lower() in SUFFIXES


def model_files(folders: Sequence[Path]) -> Iterator[Path]:
    """Yield the files that may be models, by their names."""
    for folder in folders:
        for base, _folders, names in os.walk(folder):
            for name in sorted(names):
                path = Path(base, name)
                if has_suffix(path) and not name.startswith(".") and path.is_file():
                    yield path


def listed_files(members: Sequence[str], known: Sequence[Path]) -> list[Path]:
    """Return the files that an archive's members are, found by path and else by name among those that are known."""
    by_name = {path.name: path for path in known}
    paths = [Path("/") / member for member in members if has_suffix(Path(member))]
    found = (path if path in by_name.values() or path.is_file() else by_name.get(path.name, path) for path in paths)
    return list(dict.fromkeys(found))


def archive_members(folders: Sequence[Path]) -> list[str] | None:
    """Return the names in the newest submission.zip, or None where there is no archive."""
    found = _newest_archive(folders)
    if found is None:
        return None
    with zipfile.ZipFile(found) as archive:
        return archive.namelist()


def read_member(folders: Sequence[Path], path: Path) -> bytes:
    """Return the content of the archive's member that stands for a path. Raises OSError if there is none."""
    found = _newest_archive(folders)
    if found is not None:
        with zipfile.ZipFile(found) as archive:
            for name in archive.namelist():
                if Path("/") / name == path:
                    return archive.read(name)
    raise FileNotFoundError(str(path))


def _newest_archive(folders: Sequence[Path]) -> Path | None:
    places = dict.fromkeys((Path.cwd(), *folders))
    archives = (place / ARCHIVE for place in places if zipfile.is_zipfile(place / ARCHIVE))
    return max(archives, key=lambda path: path.stat().st_mtime_ns, default=None)


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


def is_usual(path: Path) -> bool:
    """Return whether a file is named like a run's model."""
    return USUAL_NAME.search(path.name) is not None and not ON_THE_WAY.search(path.name)


def series_of(path: Path) -> str:
    """Return what files have in common that differ by the numbers in their names."""
    return NUMBER.sub("#", str(path))


def choose(paths: Sequence[Path], *, wanted: int) -> list[Path]:
    """Return the first `wanted` of the files in the order of their numbers; those with the usual name come first."""
    usual = [path for path in paths if is_usual(path)]
    candidates = usual if len(usual) >= wanted else paths
    return sorted(candidates, key=natural)[:wanted]


def natural(path: Path) -> list[tuple[int, int, str]]:
    """Sort key by which 10 comes after 9."""
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.split(r"(\d+)", str(path))]


def stamp_of(path: Path) -> tuple[int, int]:
    """When a file was last written and its length, together telling one content from the next."""
    try:
        status = path.stat()
    except OSError:
        return (0, 0)
    return status.st_mtime_ns, status.st_size


def free_room(folder: Path) -> int:
    """Return how many bytes the folders' file system has in all."""
    found = os.statvfs(folder)
    return found.f_blocks * found.f_frsize
