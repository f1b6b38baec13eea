"""A split that several hosts prepare together through remote storage.

Below `work/` of the split's key lie the files that one host has made and others need, until the split is intact and
published. In local storage all hosts work in the split's own folder, and there is nothing to carry.
"""

import secrets
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from lethe.competition.preparation_share import ShardToMake
from server.storage import Storage
from worker.split_storage.local_splits import workplace

MAKER = "work/maker.txt"
RECORDS = "work/records/"
KINDS = ("retrained", "oracle", "originals")
MODELS = tuple(f"{folder}/{kind}/" for folder in ("hidden", "work") for kind in KINDS)


@dataclass
class SplitExchange:
    """One host's side of it. folder: where this host makes its part."""

    storage: Storage
    key: str
    scratch: Path
    _pushed: dict[str, int] = field(default_factory=dict)  # when the copy that was pushed was written

    @property
    def folder(self) -> Path:
        return workplace(self.storage, self.key, scratch=self.scratch)

    def fetch_published(self) -> None:
        """Fetch the split as it was published, where this host has none, so that only what is damaged is made again."""
        if self.storage.is_local or (self.folder / "manifest.json").exists():
            return
        names = self._names(self.key)
        if "manifest.json" in names:
            wanted = [name for name in names if not name.startswith("work/") and name != "manifest.json"]
            self._download(self.key, [*wanted, "manifest.json"])

    def fetch(self, wanted: Callable[[str], bool]) -> None:
        """Fetch what others have made, where `wanted` says so of its name."""
        if self.storage.is_local:
            return
        names = self._names(self._shared)
        if MAKER in names:
            self._drop_another_makers()
        missing = [name for name in names if wanted(name) and not self._is_here(name)]
        self._download(self._shared, sorted(missing, key=_records_last))

    def fetch_for(self, shard: ShardToMake) -> None:
        """Fetch what making this shard needs: the data, and what is left of an attempt that was broken off."""
        own = _own_names(shard)
        self.fetch(lambda name: not name.startswith(MODELS) or name.startswith(own))

    def fetch_all(self) -> None:
        """Fetch what completing the split needs: all but models in training."""
        self.fetch(lambda name: not _is_checkpoint(name))

    def push(self, wanted: Callable[[str], bool]) -> None:
        """Give others what this host has made, where `wanted` says so of its name; records last."""
        if self.storage.is_local:
            return
        for name in sorted(filter(wanted, self._made()), key=_records_last):
            try:
                written = (self.folder / name).stat().st_mtime_ns
                if self._pushed.get(name) != written:
                    self.storage.upload(self.folder / name, f"{self._shared}/{name}")
                    self._pushed[name] = written
            except FileNotFoundError:  # a checkpoint that a later one has replaced
                continue

    def push_all(self) -> None:
        """Give others all that this host has finished."""
        self.push(lambda name: not _is_checkpoint(name))

    def push_shard(self, shard: ShardToMake) -> None:
        """Give others what there is of this shard, finished or not."""
        own = (*_own_names(shard), f"{RECORDS}{shard.kind}-{shard.position:05d}.json")
        self.push(lambda name: name.startswith(own))

    def begin(self, maker: str) -> None:
        """Throw away what was made below another recipe or device, before the first fetch."""
        if self.storage.is_local or MAKER not in self._names(self._shared):
            return
        if self.storage.read(f"{self._shared}/{MAKER}").decode() != maker:
            self.clear()

    def clear(self) -> None:
        """Remove what only an unfinished preparation needs."""
        if not self.storage.is_local:
            self.storage.remove(f"{self.key}/work")

    @property
    def _shared(self) -> str:
        return f"{self.key}/work/shared"

    def _names(self, prefix: str) -> list[str]:
        return [key.removeprefix(f"{prefix}/") for key in self.storage.keys(prefix)]

    def _made(self) -> list[str]:
        found = (path for path in self.folder.rglob("*") if path.is_file() and not path.name.startswith("."))
        return [path.relative_to(self.folder).as_posix() for path in found]

    def _is_here(self, name: str) -> bool:
        """A finished file is compared by its hash when it is used; a checkpoint or record may have been replaced."""
        return not name.startswith("work/") and (self.folder / name).is_file()

    def _drop_another_makers(self) -> None:
        mine = self.folder / MAKER
        if mine.is_file() and mine.read_bytes() != self.storage.read(f"{self._shared}/{MAKER}"):
            shutil.rmtree(self.folder)

    def _download(self, prefix: str, names: Iterable[str]) -> None:
        for name in names:
            path = self.folder / name
            part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
            part.parent.mkdir(parents=True, exist_ok=True)
            try:
                self.storage.download(f"{prefix}/{name}", part)
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)


def _own_names(shard: ShardToMake) -> tuple[str, ...]:
    models = range(shard.first_model, shard.first_model + shard.n_models)
    return (
        f"hidden/{shard.kind}/models-{shard.position:05d}.",
        f"work/{shard.kind}/outputs-{shard.position:05d}.",
        *(f"work/{shard.kind}/model-{index:05d}." for index in models),
    )


def _is_checkpoint(name: str) -> bool:
    return name.startswith("work/") and "/model-" in name


def _records_last(name: str) -> tuple[bool, str]:
    return name.startswith(RECORDS), name
