"""Notices the models that a program writes and those that it reads back."""

import copy
import functools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from sandbox.guest.notebook.files import has_suffix, stamp_of

WRITING = os.O_WRONLY | os.O_RDWR


class Taker(Protocol):
    """What is told of files."""

    lock: threading.RLock

    def written(self, path: Path) -> None:
        """Take notice of a file that is complete."""
        ...

    def changed_files(self) -> Iterable[Path]:
        """Return the files that are not as they were when they were last noticed."""
        ...

    def begun(self) -> None:
        """Take notice that the program holds the original model again."""
        ...

    def read(self, path: Path) -> None:
        """Take notice that the program reads a file. Raises RuntimeError if it is no longer there."""
        ...


class Watch(threading.Thread):
    """Looks for models that were not written by torch.save in this process: by a child, a copy, an open file.

    What a child has written is noticed when the child ends, if the process waits for it. Whoever needs to know of the
    rest at a point of the program calls `catch_up`. Else a file counts once it is the same at two looks.
    """

    def __init__(self, taker: Taker, *, every_s: float = 0.5) -> None:
        super().__init__(name="lethe-checkpoints", daemon=True)
        self.taker = taker
        self._every_s = every_s
        self._seen: dict[Path, tuple[int, int]] = {}
        self.writing: set[Path] = set()  # what torch.save is at in this process
        self._leave = threading.Event()
        self._owner = os.getpid()
        self._opened = False  # this process has opened or renamed what may be a model since the last look

    def run(self) -> None:
        while not self._leave.wait(self._every_s):
            try:
                self._look()
            except OSError:
                continue  # a file that went while it was looked at; or the host is gone, and so are we soon

    def end(self) -> None:
        self._leave.set()

    def catch_up(self) -> None:
        """Take what this process itself has written and closed."""
        if self._opened:
            self._opened = False
            self._opened = not self.take_closed()

    def take_closed(self) -> bool:
        """Take every new file that no process holds open. Returns whether that was all."""
        if os.getpid() != self._owner:
            return True
        with self.taker.lock:
            changed = [path for path in self.taker.changed_files() if path not in self.writing]
            held = open_files() if changed else set()
            for path in changed:
                if path not in held:
                    self.taker.written(path)
            return held.isdisjoint(changed)

    def install(self) -> None:
        """Let this process tell of the children that it has waited for and of the files that it writes."""
        sys.addaudithook(self._audit)
        waited, ended = subprocess.Popen.wait, os.waitpid

        def wait(process: Any, *arguments: Any, **options: Any) -> int:
            status = waited(process, *arguments, **options)
            self.take_closed()
            return status

        def waitpid(pid: int, options: int, /) -> tuple[int, int]:
            found = ended(pid, options)
            if found[0]:
                self.take_closed()
            return found

        subprocess.Popen.wait = wait  # type: ignore[method-assign,assignment]
        os.waitpid, os.system = waitpid, self._then_take(os.system)

    def _then_take(self, call: Callable[..., int]) -> Callable[..., int]:
        def calling(*arguments: Any, **options: Any) -> int:
            status = call(*arguments, **options)
            self.take_closed()
            return status

        return calling

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _mode, flags = arguments
            changes = isinstance(flags, int) and flags & WRITING
        elif event == "os.rename":
            path, changes = arguments[1], True
        else:
            return
        if changes and isinstance(path, str | bytes) and has_suffix(Path(os.fsdecode(path))):
            self._opened = True

    def _look(self) -> None:
        with self.taker.lock:
            for path in list(self.taker.changed_files()):
                stamp = stamp_of(path)
                settled = self._seen.get(path) == stamp and path not in self.writing
                self._seen[path] = stamp
                if settled:
                    self.taker.written(path)


def open_files() -> set[Path]:
    """Return the files that the processes of this run hold open, as far as they can be seen."""
    found = set()
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            found.add(Path(os.readlink(descriptor)))  # noqa: PTH115 - the link may name no file
        except OSError:
            continue  # closed meanwhile, or another user's
    return found


def hook_torch(watch: Watch, *, served: Mapping[Path, Mapping[str, Tensor]]) -> None:
    """Let torch.save and torch.load of this process (not of its children) tell the watch's taker what they do.

    served: files with other weights than those that lie there.
    """
    owner, taker = os.getpid(), watch.taker
    save, load = torch.save, torch.load

    def saving(obj: object, f: object, *arguments: object, **options: object) -> None:
        path = target_path(f)
        if path is None or os.getpid() != owner:
            save(obj, f, *arguments, **options)  # type: ignore[arg-type]
            return
        watch.writing.add(path)
        try:
            save(obj, f, *arguments, **options)  # type: ignore[arg-type]
        finally:
            watch.writing.discard(path)
        if not hasattr(f, "write"):  # an open file is complete once it is closed: the watch sees it
            taker.written(path)

    def loading(f: object, *arguments: object, **options: object) -> object:
        path = target_path(f)
        if path is not None and path in served:
            place = options.get("map_location", next(iter(arguments), None))
            to = place if isinstance(place, str | torch.device) else "cpu"
            return {name: tensor.clone().to(to) for name, tensor in served[path].items()}
        if path is not None:
            taker.read(path)
        options.setdefault("weights_only", False)  # as torch had it when these notebooks were written
        return load(f, *arguments, **options)  # type: ignore[arg-type]

    torch.save, torch.load = saving, loading
    sys.modules["torch.serialization"].save = saving  # type: ignore[attr-defined]


def _is_equal(value: object, tensor: Tensor) -> bool:
    return isinstance(value, Tensor) and value.shape == tensor.shape and torch.equal(value.to(tensor), tensor)


def target_path(target: object) -> Path | None:
    name = target if isinstance(target, str | os.PathLike) else getattr(target, "name", None)
    if not isinstance(name, str | os.PathLike):
        return None
    return Path(os.path.abspath(name))  # noqa: PTH100 - without following links


def hook_starts(original: Mapping[str, Tensor], begun: Callable[[], None]) -> None:
    """Report when the program holds the original model again: loaded into a network, or copied."""
    marks = [name for name, tensor in original.items() if tensor.is_floating_point()]
    marks = [marks[0], marks[-1]] if marks else []

    def is_original(state: Mapping[str, object]) -> bool:
        return bool(marks) and all(_is_equal(state.get(name), original[name]) for name in marks)

    read, load, copied = torch.load, nn.Module.load_state_dict, copy.deepcopy

    @functools.wraps(read)
    def reading(*arguments: object, **options: object) -> object:
        value = read(*arguments, **options)  # type: ignore[arg-type]
        if isinstance(value, Mapping) and is_original(value):
            begun()
        return value

    @functools.wraps(load)
    def loading(module: nn.Module, state_dict: Mapping[str, object], *arguments: object, **options: object) -> object:
        if is_original(state_dict):
            begun()
        return load(module, state_dict, *arguments, **options)  # type: ignore[arg-type]

    @functools.wraps(copied)
    def copying(value: object, *arguments: object, **options: object) -> object:
        if isinstance(value, nn.Module) and is_original(value.state_dict()):
            begun()
        return copied(value, *arguments, **options)  # type: ignore[arg-type]

    torch.load, nn.Module.load_state_dict, copy.deepcopy = reading, loading, copying  # type: ignore[method-assign,assignment]
