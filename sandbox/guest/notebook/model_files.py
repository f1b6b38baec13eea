"""Models among the files that a notebook writes: when they are complete, and how they are read.

A file is complete when it has changed and no process of the run holds it open. That is looked at when torch.save is
done, when another process has ended, before this one opens or renames a model, where a caller asks, and all the time.
"""

import contextlib
import functools
import io
import os
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lethe.runtime.data_loaders import TORCH_DTYPES
from lethe.runtime.entry import RunFault, checked_pieces
from lethe.runtime.error_classes import ErrorClass
from lethe.runtime.notebook_shell import report
from lethe.runtime.weights_layout import WeightsLayout

FOLDERS = (Path("/kaggle/tmp"), Path("/kaggle/working"))
SUFFIXES = frozenset({".pth", ".pt", ".ckpt", ".pkl", ".bin", ".tar", ".th", ".model", ".weights"})
ARCHIVE = "submission.zip"
LOOK_EVERY_S = 0.5
WRITING = os.O_WRONLY | os.O_RDWR
NO_TENSORS = "holds no tensors"  # so it is no model, whole or broken
Pieces = list[memoryview]
Stamp = tuple[int, int]
GONE: Stamp = (0, 0)
_load = torch.load  # before a run changes it for its program


class NotTorchFile(RunFault):
    """The bytes are not a complete file of torch.save, or hold something else than tensors by name."""

    def __init__(self, why: str) -> None:
        super().__init__(ErrorClass.UNREADABLE_CHECKPOINT)
        self.why = why


def read_state_dict(content: Path | bytes) -> dict[str, Tensor]:
    """Return the named tensors of a torch file. Raises NotTorchFile."""
    try:
        value = _load(
            io.BytesIO(content) if isinstance(content, bytes) else content, map_location="cpu", weights_only=True
        )
    except Exception as error:  # damaged files end in whatever the reader meets first
        raise NotTorchFile(f"not a whole torch file of tensors: {str(error)[:200]}") from error
    if not _has_tensors(value):
        raise NotTorchFile(NO_TENSORS)
    if not isinstance(value, Mapping) or not all(
        isinstance(name, str) and isinstance(item, Tensor) for name, item in value.items()
    ):
        raise NotTorchFile("holds something else than tensors by name; save net.state_dict()")
    return dict(value)


def _has_tensors(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_tensors, value.values()))
    return isinstance(value, Tensor) or (isinstance(value, list | tuple) and any(map(_has_tensors, value)))


def model_pieces(state: Mapping[str, Tensor], layout: WeightsLayout) -> tuple[Pieces, str]:
    """Return the model's bytes in the frame's order, cast to the original's types, and in words what was cast.

    Raises RunFault if it is not like the original.
    """
    wanted = {slot.name: TORCH_DTYPES[slot.dtype] for slot in layout.tensors}
    cast = {name: dtype for name, dtype in wanted.items() if name in state and state[name].dtype != dtype}
    pieces = checked_pieces({**state, **{name: state[name].to(dtype) for name, dtype in cast.items()}}, layout)
    words = sorted({f"{state[name].dtype} to {dtype}".replace("torch.", "") for name, dtype in cast.items()})
    return pieces, f"cast from {', '.join(words)}" if words else ""


def files_present() -> Iterator[Path]:
    """Yield the files that may be models, by their names."""
    for folder in FOLDERS:
        for base, _folders, names in os.walk(folder):
            for name in sorted(names):
                path = Path(base, name)
                if has_suffix(path) and not name.startswith(".") and path.is_file():
                    yield path


def archive_members() -> dict[Path, Callable[[], bytes]] | None:
    """Return the newest submission.zip's members by the path that each stands for, or None without an archive."""
    places = (folder / ARCHIVE for folder in dict.fromkeys((Path.cwd(), *FOLDERS)))
    newest = max(filter(zipfile.is_zipfile, places), key=stamp_of, default=None)
    if newest is None:
        return None
    archive = zipfile.ZipFile(newest)
    return {Path("/") / name: functools.partial(archive.read, name) for name in archive.namelist()}


def has_suffix(path: Path) -> bool:
    """Return whether a file may be a model, by how its name ends."""
    return path.suffix.lower() in SUFFIXES


def stamp_of(path: Path) -> Stamp:
    """When a file was last written and its length, together telling one content from the next."""
    try:
        found = path.stat()
    except OSError:
        return GONE
    return found.st_mtime_ns, found.st_size


class WrittenModels(threading.Thread):
    """Notices every model that is complete, whoever has written it, in the order in which they were written."""

    def __init__(self, layout: WeightsLayout) -> None:
        super().__init__(name="lethe-models", daemon=True)
        self.layout = layout
        self._reported: set[str] = set()
        self._seen: dict[Path, Stamp] = {}
        self._lock = threading.RLock()
        self._leave = threading.Event()
        self._owner = os.getpid()
        self._may_have_written = False  # this process, since the last look

    def written(self, path: Path) -> None:
        """Take notice of a file that is complete."""
        raise NotImplementedError

    def pieces(self, path: Path) -> Pieces:
        """Return a model's bytes in the frame's order; it is a file, or a member of the archive. Raises RunFault."""
        content = path if path.is_file() else (archive_members() or {}).get(path, bytes)()
        pieces, cast = model_pieces(read_state_dict(content), self.layout)
        if cast not in ("", *self._reported):
            self._reported.add(cast)
            report(f"{path.name}: {cast}, as all that follow in this form are.")
        return pieces

    def install(self) -> None:
        """Let this process look by itself."""
        sys.addaudithook(self._audit)
        hook(torch, "save", after=self._saved)
        torch.serialization.save = torch.save
        for place, name in ((subprocess.Popen, "wait"), (os, "waitpid"), (os, "system")):
            hook(place, name, after=lambda *_arguments, **_options: self.look())
        self.start()

    def run(self) -> None:
        while not self._leave.wait(LOOK_EVERY_S):
            with contextlib.suppress(OSError):  # a file that went while it was looked at
                self.look(min_age_s=LOOK_EVERY_S)  # a file cut off by an error, which ends the program, is younger

    def end(self) -> None:
        self._leave.set()
        self.join()

    def look(self, *saved: Path, min_age_s: float = 0.0) -> None:
        """Take every new file that no process holds open. saved: files to look at wherever they lie."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            stamps = {path: stamp_of(path) for path in (*filter(has_suffix, saved), *files_present())}
            changed = [path for path, stamp in stamps.items() if self._seen.get(path, GONE) != stamp]
            held = open_files() if changed else set()
            if not min_age_s:
                self._may_have_written = not held.isdisjoint(changed)
            for path in sorted(changed, key=stamps.__getitem__):
                if path not in held and time.time_ns() - stamps[path][0] >= min_age_s * 1e9:
                    self._seen[path] = stamps[path]
                    self.written(path)

    def catch_up(self) -> None:
        """Look, if this process may have written something."""
        if self._may_have_written:
            self.look()

    def _saved(self, _nothing: object, *arguments: object, **options: object) -> None:
        path = target_path(options.get("f", (*arguments, None, None)[1]))
        if path is not None:
            self._seen.pop(path, None)
            self.look(path)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING:
            path = arguments[0]
        elif event == "os.rename":
            path = arguments[1]
        else:
            return
        if isinstance(path, str | bytes) and has_suffix(Path(os.fsdecode(path))):
            self.catch_up()
            self._may_have_written = True


def open_files() -> set[Path]:
    """Return the files that the processes of this run hold open, as far as they can be seen."""
    found = set()
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # closed meanwhile, or another user's
            found.add(Path(os.readlink(descriptor)))  # noqa: PTH115 - the link may name no file
    return found


def hook(place: Any, name: str, *, after: Callable[..., None]) -> None:
    """Call `after` with the result and the arguments of each call of a function."""
    call = getattr(place, name)

    @functools.wraps(call)
    def calling(*arguments: object, **options: object) -> object:
        found = call(*arguments, **options)
        after(found, *arguments, **options)
        return found

    setattr(place, name, calling)


def target_path(target: object) -> Path | None:
    """Return the path of a file that torch.save or torch.load is given, or None."""
    name = target if isinstance(target, str | os.PathLike) else getattr(target, "name", None)
    if not isinstance(name, str | os.PathLike):
        return None
    return Path(os.path.abspath(name))  # noqa: PTH100 - without following links
