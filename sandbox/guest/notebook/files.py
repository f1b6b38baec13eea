"""Reads the models that a notebook writes, as they appear, and frees space while the notebook still sees its files.

A checkpoint that is named as the competition names them leaves at once; other files leave when room is needed or the
notebook's archive lists them. A file that has left may be replaced by a short note of the same name, oldest first, once
the folders hold more than they should. What a notebook reads back is never replaced.
"""

import contextlib
import os
import re
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from lethe.runtime.entry import TORCH_DTYPES, RunFault
from lethe.runtime.weights_layout import WeightsLayout
from sandbox.guest.harness import write_all
from sandbox.guest.notebook.frame_format import encode_checkpoint_head, encode_choice
from sandbox.guest.notebook.torch_files import NotTorchFile, StateDict, read_state_dict

SUFFIXES = frozenset({".pth", ".pt", ".ckpt", ".pkl", ".bin", ".tar"})
USUAL_NAME = re.compile(r"unlearn.*\d", re.IGNORECASE)
ARCHIVE = "submission.zip"
NOTE = b"Lethe has taken up this model; its bytes are no longer here.\n"
NEWEST_KEPT = 1  # of the files on the disk, so that a notebook can look at what it has just written


class EnoughModels(BaseException):
    """The notebook has begun to write more models than count; raised through its code, which need not go on."""


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
    enough: bool = False
    lock: threading.RLock = field(default_factory=threading.RLock)

    def written(self, path: Path) -> None:
        """Look at a file that was just written: read it if it is named as a checkpoint; free space.

        Raises EnoughModels at the first such file beyond those that count.
        """
        with self.lock:
            if not self.is_ours(path):
                return
            if self.enough:
                raise EnoughModels
            if USUAL_NAME.search(path.name):
                if path not in self.known and self._n_usual() >= self.wanted:
                    self.enough = True  # told at the notebook's next write if this was not one, but a renamed file
                    raise EnoughModels
                self._take(path)
            self.make_room()

    def _n_usual(self) -> int:
        return sum(known.slot >= 0 and bool(USUAL_NAME.search(path.name)) for path, known in self.known.items())

    def is_ours(self, path: Path) -> bool:
        return path.suffix in SUFFIXES and any(folder in path.parents for folder in self.folders)

    def is_note(self, path: Path) -> bool:
        """Return whether a note stands where the notebook wrote a model."""
        known = self.known.get(path)
        return known is not None and known.is_note and _stamp(path) == known.stamp

    def changed_files(self) -> Iterator[Path]:
        """Yield the files that are not as they were read."""
        for path in self._files():
            known = self.known.get(path)
            if known is None or known.stamp != _stamp(path):
                yield path

    def make_room(self) -> None:
        """Replace files by notes, the oldest first, while the folders hold more than they should."""
        files = sorted(self._files(), key=_stamp)
        used = sum(_stamp(path)[1] for path in files)
        newest = len(files) - NEWEST_KEPT
        for path in files[: newest if used <= 2 * self.room_bytes else len(files)]:
            if used <= self.room_bytes:
                return
            if path in self.read_back or self.is_note(path):
                continue
            if self._is_taken(path) or self._take(path):
                used -= _stamp(path)[1]
                self._leave_note(path)

    def finish(self, *, at_its_end: bool) -> None:
        """Choose the models that count and end the stream. Raises RunFault if there are too few.

        at_its_end: the notebook has run to its end, so that an archive of it decides.
        """
        wanted = self.wanted
        with self.lock:
            members = archive_members(self.folders) if at_its_end else None
            candidates = self._listed(members) if members is not None else list(self._files())
            chosen = choose(candidates, wanted=wanted)
            if len(chosen) < wanted:
                raise RunFault("too-few-checkpoints")
            write_all(self.frame_fd, encode_choice([self._slot_for(path) for path in chosen]))

    def _listed(self, members: Sequence[str]) -> list[Path]:
        """Return the files that the archive's members are, found by path and else by name."""
        by_name = {path.name: path for path in (*self.known, *self._files())}
        found = []
        for member in members:
            path = Path("/") / member
            if path.suffix not in SUFFIXES:
                continue
            found.append(path if path in self.known or path.is_file() else by_name.get(path.name, path))
        return list(dict.fromkeys(found))

    def _slot_for(self, path: Path) -> int:
        known = self.known.get(path)
        if known is not None and known.slot >= 0 and (not path.exists() or known.stamp == _stamp(path)):
            return known.slot
        if not path.is_file():
            raise RunFault("too-few-checkpoints")
        if not self._take(path):
            raise self.known[path].refusal or RunFault("unreadable-checkpoint")
        return self.known[path].slot

    def _is_taken(self, path: Path) -> bool:
        known = self.known.get(path)
        return known is not None and known.slot >= 0 and known.stamp == _stamp(path)

    def _take(self, path: Path) -> bool:
        """Send the file's model to the host. Return False for a file that is none, keeping why."""
        known = self.known.setdefault(path, Known())
        stamp = _stamp(path)
        if known.slot >= 0 and known.stamp == stamp:
            return True
        known.stamp, known.is_note, known.refusal = stamp, False, None
        try:
            pieces = self._pieces(read_state_dict(path), path)
        except NotTorchFile as error:
            self.tell(f"[lethe] {path} cannot be taken as a model: {error}")
            known.refusal = RunFault("unreadable-checkpoint")
            return False
        except RunFault as fault:
            known.refusal = fault
            return False
        if known.slot < 0:
            known.slot, self.slots = self.slots, self.slots + 1
        write_all(self.frame_fd, encode_checkpoint_head(known.slot) + self.layout.header)
        for piece in pieces:
            write_all(self.frame_fd, piece)
        return True

    def _pieces(self, state: StateDict, path: Path) -> list[memoryview]:
        """Return the model's bytes in the frame's order, cast to the original's types."""
        pieces, cast = [], set()
        for slot in self.layout.tensors:
            ref = state.refs.get(slot.name)
            if ref is None:
                raise RunFault("wrong-weights", detail={"kind": "missing", "tensor": slot.name})
            if ref.shape != slot.shape:
                raise RunFault("wrong-weights", detail={"kind": "shape", "tensor": slot.name})
            wanted = TORCH_DTYPES[slot.dtype]
            if ref.dtype != wanted:
                cast.add((ref.dtype, wanted))
            pieces.append(_as_bytes(_cast(state.tensor(slot.name), wanted)))
        if len(state.refs) != len(self.layout.tensors):
            raise RunFault("wrong-weights", detail={"kind": "extra"})
        self._tell_cast(cast, path)
        return pieces

    def _tell_cast(self, cast: set[tuple[torch.dtype, torch.dtype]], path: Path) -> None:
        if not cast or self.told_cast:
            return
        self.told_cast = True
        words = ", ".join(f"{before} to {after}".replace("torch.", "") for before, after in sorted(cast, key=str))
        self.tell(f"[lethe] {path.name}: cast from {words}, as all that follow in this form are.")

    def _leave_note(self, path: Path) -> None:
        note = path.with_name(f".{path.name}.note")
        note.write_bytes(NOTE)
        note.replace(path)  # a process that reads the old file keeps it until it is done
        known = self.known[path]
        known.stamp, known.is_note = _stamp(path), True

    def _files(self) -> Iterator[Path]:
        for folder in self.folders:
            for base, _folders, names in os.walk(folder):
                for name in sorted(names):
                    path = Path(base, name)
                    if path.suffix in SUFFIXES and not name.startswith(".") and path.is_file():
                        yield path


class Watch(threading.Thread):
    """Looks for models that were not written by torch.save in this process: by a child, a copy, an open file."""

    def __init__(self, taker: CheckpointTaker, *, every_s: float = 0.5) -> None:
        super().__init__(name="lethe-checkpoints", daemon=True)
        self._taker = taker
        self._every_s = every_s
        self._seen: dict[Path, tuple[int, int]] = {}
        self.writing: set[Path] = set()  # what torch.save is at in this process
        self._leave = threading.Event()

    def run(self) -> None:
        while not self._leave.wait(self._every_s):
            try:
                self._look()
            except OSError:
                continue  # a file that went while it was looked at; or the host is gone, and so are we soon

    def end(self) -> None:
        self._leave.set()

    def _look(self) -> None:
        with self._taker.lock:
            for path in list(self._taker.changed_files()):
                stamp = _stamp(path)
                settled = self._seen.get(path) == stamp and path not in self.writing
                self._seen[path] = stamp
                if settled:
                    with contextlib.suppress(EnoughModels):  # only the notebook's own thread can be ended so
                        self._taker.written(path)


def archive_members(folders: Sequence[Path]) -> list[str] | None:
    """Return the names in the newest submission.zip, or None where there is no archive."""
    places = dict.fromkeys((Path.cwd(), *folders))
    found = [place / ARCHIVE for place in places if zipfile.is_zipfile(place / ARCHIVE)]
    if not found:
        return None
    with zipfile.ZipFile(max(found, key=lambda path: path.stat().st_mtime_ns)) as archive:
        return archive.namelist()


def choose(paths: Sequence[Path], *, wanted: int) -> list[Path]:
    """Return the first `wanted` of the files in the order of their numbers; those with the usual name come first."""
    usual = [path for path in paths if USUAL_NAME.search(path.name)]
    candidates = usual if len(usual) >= wanted else paths
    return sorted(candidates, key=natural)[:wanted]


def natural(path: Path) -> list[tuple[int, int, str]]:
    """Sort key by which 10 comes after 9."""
    return [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.split(r"(\d+)", str(path))]


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def _as_bytes(tensor: Tensor) -> memoryview:
    flat = tensor.contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy().data) if flat.numel() else memoryview(b"")


def _stamp(path: Path) -> tuple[int, int]:
    """When a file was last written and its length, together telling one content from the next."""
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return found.st_mtime_ns, found.st_size


def hook_torch(taker: CheckpointTaker, watch: Watch) -> None:
    """Let torch.save and torch.load of this process (not of its children) tell the taker what they do."""
    owner = os.getpid()
    save, load = torch.save, torch.load

    def saving(obj: object, f: object, *arguments: object, **options: object) -> None:
        path = _target_path(f)
        if path is None or os.getpid() != owner:
            save(obj, f, *arguments, **options)  # type: ignore[arg-type]
            return
        watch.writing.add(path)
        try:
            save(obj, f, *arguments, **options)  # type: ignore[arg-type]
        finally:
            watch.writing.discard(path)
        taker.written(path)

    def loading(f: object, *arguments: object, **options: object) -> object:
        path = _target_path(f)
        if path is not None:
            if taker.is_note(path):
                raise RuntimeError(f"{path} was already evaluated and is no longer on the disk")
            taker.read_back.add(path)
        options.setdefault("weights_only", False)  # as torch had it when these notebooks were written
        return load(f, *arguments, **options)  # type: ignore[arg-type]

    torch.save, torch.load = saving, loading
    sys.modules["torch.serialization"].save = saving  # type: ignore[attr-defined]


def _target_path(target: object) -> Path | None:
    name = target if isinstance(target, str | os.PathLike) else getattr(target, "name", None)
    if not isinstance(name, str | os.PathLike):
        return None
    return Path(os.path.abspath(name))  # noqa: PTH100 - without following links


def free_room(folder: Path) -> int:
    """Return how many bytes the folders' file system has in all."""
    found = os.statvfs(folder)
    return found.f_blocks * found.f_frsize
