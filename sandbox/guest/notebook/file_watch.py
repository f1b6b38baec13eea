"""Notices the models that a program writes and those that it reads back."""

import os
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from sandbox.guest.notebook.files import stamp_of


class Taker(Protocol):
    """What is told of files."""

    lock: threading.RLock

    def written(self, path: Path) -> None:
        """Take notice of a file that is complete."""
        ...

    def changed_files(self) -> Iterable[Path]:
        """Return the files that are not as they were when they were last noticed."""
        ...

    def read(self, path: Path) -> None:
        """Take notice that the program reads a file. Raises RuntimeError if it is no longer there."""
        ...


class Watch(threading.Thread):
    """Looks for models that were not written by torch.save in this process: by a child, a copy, an open file."""

    def __init__(self, taker: Taker, *, every_s: float = 0.5) -> None:
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
                stamp = stamp_of(path)
                settled = self._seen.get(path) == stamp and path not in self.writing
                self._seen[path] = stamp
                if settled:
                    self._taker.written(path)


def hook_torch(taker: Taker, watch: Watch, *, served: Mapping[Path, Mapping[str, Tensor]]) -> None:
    """Let torch.save and torch.load of this process (not of its children) tell the taker what they do.

    served: files with other weights than those that lie there.
    """
    owner = os.getpid()
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


def target_path(target: object) -> Path | None:
    name = target if isinstance(target, str | os.PathLike) else getattr(target, "name", None)
    if not isinstance(name, str | os.PathLike):
        return None
    return Path(os.path.abspath(name))  # noqa: PTH100 - without following links
