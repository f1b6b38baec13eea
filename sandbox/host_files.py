"""The host's files that a sandbox and its runs are started on: what they must be, and who may read them."""

import itertools
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from lethe.runtime.weights_layout import ORIGINAL_MODEL, WeightsLayout, read_layout
from sandbox.errors import BackendUnavailable, InvalidRequest
from sandbox.run_request import RunRequest, SandboxSpec

_MAX_FILES_NAMED = 10_000
_MIB = 1024 * 1024


def layout_for(spec: SandboxSpec) -> WeightsLayout:
    """Return what a frame must look like. Raises InvalidRequest where the folders are not what they should be."""
    path = spec.data_dir / ORIGINAL_MODEL
    if not path.is_file():
        raise InvalidRequest(f"a split's visible folder holds {ORIGINAL_MODEL}; there is none in {spec.data_dir}")
    if not spec.stage_dir.is_dir():
        raise InvalidRequest(f"the stage folder does not exist: {spec.stage_dir}")
    layout = read_layout(path.read_bytes())
    if layout.frame_bytes > spec.policy.frame_mib * 1024 * 1024:
        raise InvalidRequest(f"the model's {layout.frame_bytes} bytes exceed frame_mib = {spec.policy.frame_mib}")
    return layout


def staged_original(request: RunRequest, spec: SandboxSpec, layout: WeightsLayout) -> str:
    """Return the name below the stage folder of the run's own original model, "" if it has none.

    Raises InvalidRequest unless it is a file there with the header and the length of the data folder's.
    """
    if request.original is None:
        return ""
    if request.notebook is not None:
        raise InvalidRequest("a notebook makes all its models from one original: it can have none for each run")
    path = request.original.resolve()
    if spec.stage_dir not in path.parents or not path.is_file():
        raise InvalidRequest(f"the original model must be a file below {spec.stage_dir}, not {request.original}")
    with path.open("rb") as file:
        same = file.read(len(layout.header)) == layout.header
    if not same or path.stat().st_size != layout.frame_bytes:
        raise InvalidRequest(f"the original model {path} has other tensors than the split's {ORIGINAL_MODEL}")
    if os.geteuid() == 0:
        open_to_others((*(folder for folder in path.parents if spec.stage_dir in folder.parents), path))
    return path.relative_to(spec.stage_dir).as_posix()


def open_to_others(paths: Iterable[Path]) -> None:
    """Make shown files readable for the unprivileged user; a private parent folder keeps others out."""
    for path in paths:
        mode = path.lstat().st_mode
        wanted = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
        if stat.S_ISLNK(mode) or mode & wanted == wanted:
            continue
        try:
            path.chmod(stat.S_IMODE(mode) | wanted)
        except OSError as error:
            raise BackendUnavailable(
                f"{path} must be readable for other users, since the sandbox drops root: chmod o+rX {path}"
            ) from error


def lines_of_files(code_dir: Path) -> dict[str, int]:
    """Return how many lines each of the submission's own files has: the only places that a message may name."""
    paths = (path for path in code_dir.rglob("*.py") if path.is_file() and not path.is_symlink())
    return {
        path.relative_to(code_dir).as_posix(): path.read_bytes().count(b"\n") + 1
        for path in itertools.islice(paths, _MAX_FILES_NAMED)
    }


class GuestFiles:
    """Lends folders to a process's user, and takes them back. removed: names of what was not let back."""

    def __init__(self, reads: Iterable[Path], writes: Iterable[Path], *, uid: int | None) -> None:
        """uid: whom root drops to; None where the caller is not root and stays who it is."""
        self._reads, self._writes, self._uid = tuple(reads), tuple(writes), uid
        self.removed: list[str] = []

    def __enter__(self) -> Self:
        if self._uid is not None:
            for path in self._reads:
                open_to_others((path, *path.rglob("*")) if path.is_dir() else (path,))
            for path in self._all_written():
                os.chown(path, self._uid, self._uid, follow_symlinks=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the folders back; the process must be gone."""
        for path in sorted(self._all_written(), key=lambda found: len(found.parts)):
            mode = path.lstat().st_mode
            if not stat.S_ISDIR(mode) and not (stat.S_ISREG(mode) and path.lstat().st_nlink == 1):
                path.unlink()
                self.removed.append(path.name)
                continue
            if self._uid is not None:
                os.chown(path, os.geteuid(), os.getegid(), follow_symlinks=False)
            path.chmod(0o755 if stat.S_ISDIR(mode) else 0o644)

    def written_mib(self) -> float:
        """Return the size of what lies in the folders that are lent."""
        total = 0
        for path in self._all_written():
            try:
                total += path.lstat().st_blocks * 512
            except OSError:
                continue  # gone meanwhile
        return total / _MIB

    def _all_written(self) -> Iterator[Path]:
        """Yield the folders and all in them; no link is followed."""
        for folder in self._writes:
            yield folder
            for place, folders, files in os.walk(folder):
                yield from (Path(place, name) for name in (*folders, *files))
