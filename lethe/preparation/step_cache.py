"""A split in the making: steps, what they read and wrote, and which of them are still good.

Each finished step leaves a record below work/, so several processes may each make steps of one split; the last one
gathers the records into manifest.json and removes work/.
"""

import hashlib
import json
import platform
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from pydantic import ValidationError

from lethe.competition.file import CompetitionFile
from lethe.competition.preparation_share import BEGINNING, training_recipe
from lethe.competition.visibility import Visibility
from lethe.data.errors import DamagedSplit, InvalidSplit, SplitNotPrepared
from lethe.data.files import read_json, sha256_of, write_text
from lethe.evaluation.manifest import (
    MANIFEST,
    Damage,
    FileRecord,
    Manifest,
    RetrainingTimes,
    StepRecord,
    find_damage,
)

WORK = "work"  # below the split, what only an unfinished preparation needs
_RECORDS = f"{WORK}/records"


@dataclass(frozen=True)
class PreparationProgress:
    """How far preparation is. message: what a reader should know, such as a file found damaged."""

    stage: str
    done: float  # a model half trained counts as a half
    total: int
    message: str = ""


OnProgress = Callable[[PreparationProgress], None]


@dataclass(frozen=True)
class Step:
    """One step: `make` writes `files`, reading nothing but the recipe and `inputs`; it returns what it measured."""

    name: str
    files: tuple[str, ...]
    make: Callable[[], dict[str, Any] | None]
    inputs: tuple[str, ...] = ()
    stage: str = ""
    tells_progress: bool = False  # by itself, of a stage that it shares with other steps

    @property
    def label(self) -> str:
        """What progress shows while it is made."""
        return self.stage or BEGINNING.get(self.name, self.name)


class Workspace:
    """The folder of one split while it is prepared."""

    def __init__(self, split_dir: Path, *, fingerprint: str, maker: str, progress: OnProgress) -> None:
        """fingerprint: of the recipe. maker: of the recipe and of what makes the split from it."""
        self.split_dir = split_dir
        self.work_dir = split_dir / WORK
        self.fingerprint = fingerprint
        self.maker = maker
        self.progress = progress
        self._records: dict[str, StepRecord] = {}
        self._published: dict[str, FileRecord] = {}
        self._hashes: dict[str, str] = {}

    def open(self) -> None:
        """Take over what an earlier preparation finished; throw away what another recipe or kind of device made."""
        manifest = self._old_manifest()
        if manifest and manifest.fingerprint == self.fingerprint:
            self._records, self._published = dict(manifest.steps), dict(manifest.files)
        elif (self.split_dir / MANIFEST).exists() or self._read_maker() not in ("", self.maker):
            self._start_again()
        self.work_dir.mkdir(parents=True, exist_ok=True)
        write_text(self._maker_file, self.maker)

    def run(self, step: Step) -> dict[str, Any]:
        """Make the step unless it is intact; return what it measured when it was made."""
        record = self._find_record(step)
        if record is not None and self._is_fresh(step, record):
            return record.values
        for path in step.files:
            self._hashes.pop(path, None)
        if not step.tells_progress:
            self.progress(PreparationProgress(step.label, 0, 1))
        started = time.perf_counter()
        values = step.make() or {}
        seconds = time.perf_counter() - started
        record = StepRecord(
            files={path: FileRecord.of(self.split_dir / path) for path in step.files},
            inputs={path: self._hash(path) for path in step.inputs},
            seconds=round(seconds, 3),
            values=values,
        )
        self._hashes.update({path: made.sha256 for path, made in record.files.items()})
        self._records[step.name] = record
        write_text(self._record_path(step.name), record.model_dump_json())
        return record.values

    def require_as_published(self, paths: Iterable[str]) -> None:
        """Raise InvalidSplit for a file of a published split that was made again and is another one."""
        for path in paths:
            damage = find_damage(self.split_dir, path, self._published[path]) if path in self._published else None
            if damage:
                raise InvalidSplit(
                    f"{path} was damaged, and made again it is another file: the data has changed since the split was "
                    "prepared. Bring the data of then back and prepare again, or replace the split"
                )

    def finished(self, step: Step) -> bool:
        """Say whether the step is intact, reporting what is damaged."""
        record = self._find_record(step)
        return record is not None and self._is_fresh(step, record)

    def records(self, steps: Sequence[Step]) -> dict[str, StepRecord]:
        return {step.name: self._records[step.name] for step in steps}

    def digest(self, paths: Sequence[str]) -> str:
        """Return one hash over the recipe and the content of these files."""
        text = "\n".join([self.fingerprint, *(self._hash(path) for path in paths)])
        return hashlib.sha256(text.encode()).hexdigest()

    @staticmethod
    def remove(split_dir: Path) -> None:
        """Remove what only an unfinished preparation needs."""
        shutil.rmtree(split_dir / WORK, ignore_errors=True)

    @property
    def _maker_file(self) -> Path:
        return self.work_dir / "maker.txt"

    def _read_maker(self) -> str:
        try:
            return self._maker_file.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return ""

    def _old_manifest(self) -> Manifest | None:
        try:
            return Manifest.read(self.split_dir)
        except SplitNotPrepared:
            return None
        except DamagedSplit as error:
            self.progress(PreparationProgress("check", 0, 1, f"{error}; the split is made again"))
            return None

    def _start_again(self) -> None:
        self.progress(
            PreparationProgress(
                "check", 0, 1, f"{self.split_dir}: made by another recipe, device or torch, or unreadable: made again"
            )
        )
        for name in ("visible", "hidden", "sample", "work"):
            shutil.rmtree(self.split_dir / name, ignore_errors=True)
        (self.split_dir / MANIFEST).unlink(missing_ok=True)

    def _record_path(self, name: str) -> Path:
        return self.split_dir / _RECORDS / f"{name}.json"

    def _find_record(self, step: Step) -> StepRecord | None:
        path = self._record_path(step.name)
        if path.exists():
            try:
                self._records[step.name] = StepRecord.model_validate(read_json(path))
            except (ValidationError, DamagedSplit):
                self.progress(PreparationProgress(step.label, 0, 1, f"{path} is damaged; its step is made again"))
                return None
        return self._records.get(step.name)

    def _is_fresh(self, step: Step, record: StepRecord) -> bool:
        if set(record.files) != set(step.files):
            return False
        changed = [path for path in step.inputs if record.inputs.get(path) != self._hash(path)]
        damages = [find_damage(self.split_dir, path, made) for path, made in record.files.items()]
        for damage in damages:
            if damage:
                self._report(step, damage)
        if changed or any(damages):
            return False
        self._hashes.update({path: made.sha256 for path, made in record.files.items()})
        return True

    def _report(self, step: Step, damage: Damage) -> None:
        self.progress(
            PreparationProgress(step.label, 0, 1, f"{self.split_dir / damage.path} was damaged: {damage}; made again")
        )

    def _hash(self, path: str) -> str:
        if path not in self._hashes:
            self._hashes[path] = sha256_of(self.split_dir / path)
        return self._hashes[path]


def read_timing(split_dir: Path) -> RetrainingTimes:
    """Return what an unfinished preparation has measured of one retraining. Raises DamagedSplit or SplitNotPrepared."""
    record = StepRecord.model_validate(read_json(split_dir / _RECORDS / "timing.json"))
    return RetrainingTimes.model_validate(record.values)


def fingerprint(competition: CompetitionFile, visibility: Visibility) -> str:
    """Return the hash of everything that decides what a split consists of."""
    text = json.dumps({"recipe": training_recipe(competition), "visibility": visibility}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def maker(competition: CompetitionFile, visibility: Visibility, *, device: str) -> str:
    """Return what an unfinished split is made from and by: recipe, kind of device, release of torch.

    Devices and releases of torch round differently: a split that another kind or release began is made again.
    """
    release = ".".join(torch.__version__.split("+")[0].split(".")[:2])
    return f"{fingerprint(competition, visibility)} {device} torch {release}"


def library_versions() -> dict[str, str]:
    """Return what is installed. scikit-learn and torchvision take seconds to import, and often nothing else does."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": metadata.version("torchvision"),
        "numpy": np.__version__,
        "scikit-learn": metadata.version("scikit-learn"),
        "safetensors": safetensors.__version__,
        "machine": platform.machine(),
    }


def describe_version_change(before: dict[str, str], now: dict[str, str]) -> str:
    """Name the libraries whose versions differ from those of the split's first files; empty if none differs.

    The build, as in 0.26.0+cpu, is not part of every version that was written down.
    """
    changed = [
        f"{name} {before.get(name, 'unknown')} -> {version}"
        for name, version in now.items()
        if version not in (then := before.get(name, "unknown"), then.partition("+")[0])
    ]
    if not changed:
        return ""
    return f"libraries changed since this split was begun ({', '.join(changed)}); rebuilt files may differ in bits"
