"""manifest.json: what a prepared split consists of, how it was made, and whether it still is that."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lethe.competition.file import Setup
from lethe.competition.visibility import Visibility
from lethe.data.errors import DamagedSplit
from lethe.data.files import read_json, sha256_of, write_text
from lethe.device import Precision

MANIFEST = "manifest.json"
NETWORK_PATH = "visible/network.json"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)  # other versions may write more keys


class FileRecord(_Part):
    sha256: str
    size: int

    @classmethod
    def of(cls, path: Path) -> Self:
        return cls(sha256=sha256_of(path), size=path.stat().st_size)


class EvaluationSettings(_Part):
    """Fixed for the split: the first two can change the last bits of a result, the third says what is stored."""

    batch_size: int = Field(default=256, ge=1)
    precision: Precision = "float32"
    capture: tuple[int, ...] = ()


class StepRecord(_Part):
    """One finished step: the files it made, the hashes of the files it read, and what it measured."""

    files: dict[str, FileRecord]
    inputs: dict[str, str] = Field(default_factory=dict)
    seconds: float = 0.0
    values: dict[str, Any] = Field(default_factory=dict)


class RetrainingTimes(_Part):
    """What preparation measured of one retraining, seconds; None: not measured.

    retraining_time_s: by the clock, in the plain loop. retraining_cpu_s: the same of the processor. fastest_cpu_s: the
    least of the processor that is known.
    """

    retraining_time_s: float
    retraining_cpu_s: float | None = None
    fastest_cpu_s: float | None = None

    @property
    def least_cpu_s(self) -> float | None:
        """Processor seconds of the fastest retraining that preparation knows; None where none was measured."""
        return self.retraining_cpu_s if self.fastest_cpu_s is None else self.fastest_cpu_s


class Manifest(_Part):
    """The content of manifest.json. `files` are all files of the split but this one."""

    format: Literal[1] = 1
    competition: str
    visibility: Visibility
    setup: Setup = "reuse-n-1"
    n_models: int
    fingerprint: str
    recipe: dict[str, Any]
    seeds: dict[str, Any]
    versions: dict[str, str]
    files: dict[str, FileRecord]
    retraining_time_s: float
    evaluation: EvaluationSettings
    quality: dict[str, Any]
    steps: dict[str, StepRecord]

    def text(self) -> str:
        """Return the content of manifest.json."""
        return self.model_dump_json(indent=1) + "\n"

    def write(self, split_dir: Path) -> None:
        write_text(split_dir / MANIFEST, self.text())

    @property
    def timing(self) -> RetrainingTimes:
        return RetrainingTimes.model_validate(self.steps["timing"].values)

    @classmethod
    def read(cls, split_dir: Path) -> Self:
        """Return the manifest of a prepared split. Raises SplitNotPrepared or DamagedSplit."""
        path = split_dir / MANIFEST
        try:
            return cls.model_validate(read_json(path))
        except ValidationError as error:
            raise DamagedSplit(f"{path} is damaged: {error.errors()[0]['loc']}: {error.errors()[0]['msg']}") from error


@dataclass(frozen=True)
class Damage:
    """One file that is not what the manifest says."""

    path: str
    problem: Literal["missing", "wrong size", "wrong content"]
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}" + (f" ({self.detail})" if self.detail else "")


def find_damage(split_dir: Path, path: str, record: FileRecord) -> Damage | None:
    """Return what is wrong with one file, or None."""
    try:
        size = (split_dir / path).stat().st_size
        if size != record.size:
            return Damage(path, "wrong size", f"{size} bytes, must be {record.size}")
        sha256 = sha256_of(split_dir / path)
    except FileNotFoundError:
        return Damage(path, "missing")
    if sha256 != record.sha256:
        return Damage(path, "wrong content", f"sha256 {sha256[:12]}..., must be {record.sha256[:12]}...")
    return None


def verify_split(split_dir: Path, *, only: Collection[str] | None = None) -> list[Damage]:
    """Return every file of a prepared split (or of those in `only`) that is damaged, by hash.

    Raises SplitNotPrepared where there is no manifest, DamagedSplit where it cannot be read.
    """
    records = Manifest.read(split_dir).files
    wanted = sorted(path for path in records if only is None or path in only)
    found = (find_damage(split_dir, path, records[path]) for path in wanted)
    return [damage for damage in found if damage]


def require_whole(split_dir: Path, *, only: Collection[str] | None = None) -> Manifest:
    """Return the manifest of a split whose files (or those in `only`) are intact.

    Raises DamagedSplit naming each that is not.
    """
    damages = verify_split(split_dir, only=only)
    if damages:
        listed = "; ".join(str(damage) for damage in damages)
        raise DamagedSplit(f"{split_dir}: {listed}. Prepare the split again: only damaged files are rebuilt")
    return Manifest.read(split_dir)
