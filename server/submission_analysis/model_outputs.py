"""What the runs of a submission gave beside what the retrained models give.

Forget examples are ordered by the epsilons that were stored with the score. A score that is older than these orders
them by `separation`, the Kolmogorov-Smirnov distance between the two sets of models.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache, partial
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field
from safetensors.numpy import load

from lethe.errors import NotFound
from lethe.evaluation.sample_answer_files import FORGET_ANSWERS, texts_from_array
from server.models.competition import Split
from server.models.evaluation import Shard
from server.storage import DamagedFile, Storage, split_key

MANIFEST = "manifest.json"
RETRAINED = "hidden/retrained/outputs.safetensors"
Array = npt.NDArray[np.float64]
EXAMPLES = ("hardest", "median", "easiest")
SETS = ("retain", "test")
Arrays = dict[str, npt.NDArray[Any]]
Rows = list[dict[str, object]]


class ModelSet(StrEnum):
    """A set of models whose arrays are stored. The name of each but the first is that of its folder."""

    UNLEARNED = "unlearned"
    RETRAINED = "retrained"
    ORACLE = "oracle"
    ORIGINAL = "original"


def read_split_file(storage: Storage, folder: str, name: str, *, manifest_sha256: str) -> bytes:
    """Return a file of a split. Raises NotFound, or DamagedFile where it is not what the split's manifest says."""
    try:
        manifest = storage.read_verified(f"{folder}/{MANIFEST}", manifest_sha256)
    except NotFound:
        return storage.read(f"{folder}/{name}")
    record = json.loads(manifest)["files"].get(name)
    if record is None:
        raise NotFound(f"{folder} has no {name}")
    return storage.read_verified(f"{folder}/{name}", record["sha256"])


@dataclass(frozen=True)
class Outputs:
    """Of n models on S forget examples: confidences [n, S], accuracies [n], and wall times [n] in seconds.

    class_accuracy: [n, 2, classes], on retain and test; None where older outputs lack it.
    """

    confidences: Array
    retain_accuracy: Array
    test_accuracy: Array
    wall_time_s: Array | None = None
    class_accuracy: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Example:
    """One forget example. hardness: its epsilon, or its separation where no epsilons are stored."""

    name: str
    index: int
    hardness: float


@dataclass(frozen=True)
class ClassUtility:
    """Mean accuracies on one class of one set, of the unlearned and of the retrained models."""

    label: int
    unlearned: float
    retrained: float

    @property
    def ratio(self) -> float | None:
        return self.unlearned / self.retrained if self.retrained else None


@dataclass(frozen=True)
class OutputComparison:
    """Both sets of models, and the examples to look at. measure: what the examples are ordered by."""

    unlearned: Outputs
    retrained: Outputs
    measure: str
    hardness: Array  # [S]
    examples: tuple[Example, ...]

    def rows(self, name: str) -> Rows:
        """Return one quantity of both sets of models, for a figure. name: an example's, or that of an accuracy."""
        pairs = (("unlearned", self.unlearned), ("retrained", self.retrained))
        if name in EXAMPLES:
            index = next(example.index for example in self.examples if example.name == name)
            return [_row(value, models) for models, o in pairs for value in o.confidences[:, index]]
        if name == "hardness":
            return [_row(value, "forget examples") for value in self.hardness]
        return [_row(value, models) for models, outputs in pairs for value in getattr(outputs, f"{name}_accuracy")]

    def run_times(self) -> Rows:
        """Return the wall time of each run, for a figure."""
        times = self.unlearned.wall_time_s
        if times is None:
            return []
        return [{"run": run, "seconds": round(float(value), 4)} for run, value in enumerate(times, start=1)]

    def utility_of_classes(self) -> dict[str, list[ClassUtility]] | None:
        """Return the accuracies on each class of the retain and test set, None where one side's are not stored."""
        u, r = self.unlearned.class_accuracy, self.retrained.class_accuracy
        if u is None or r is None:
            return None
        means = u.mean(axis=0, dtype=np.float64), r.mean(axis=0, dtype=np.float64)
        return {
            name: [
                ClassUtility(label, float(a), float(b))
                for label, (a, b) in enumerate(zip(means[0][place], means[1][place], strict=True))
                if not np.isnan(a + b)
            ]
            for place, name in enumerate(SETS)
        }


def decode_epsilons(stored: bytes | None) -> Array | None:
    """Return the epsilons that a score keeps, [S], or None."""
    return None if stored is None else np.frombuffer(stored, "<f4").astype(np.float64)


def epsilon_rows(epsilons: Array, name: str = "forget examples") -> Rows:
    """Return epsilons for a figure."""
    return [_row(value, name) for value in epsilons]


def compare_outputs(
    storage: Storage, split: Split, slug: str, shards: Sequence[Shard], *, epsilon: Array | None
) -> OutputComparison | None:
    """Return the outputs of both sets of models, or None where they are not all stored, or damaged."""
    if not shards:
        return None
    keys = tuple((shard.result_key or "", shard.result_sha256 or "") for shard in shards)
    folder = split_key(slug, split.visibility, split.version)
    try:
        unlearned, retrained = _read(storage, keys, folder, split.manifest_sha256 or "")
    except (NotFound, DamagedFile):
        return None
    if epsilon is not None and len(epsilon) == unlearned.confidences.shape[1]:
        return OutputComparison(unlearned, retrained, "epsilon", epsilon, _chosen(epsilon))
    values = separations(unlearned.confidences, retrained.confidences)
    return OutputComparison(unlearned, retrained, "separation", values, _chosen(values))


def read_arrays(storage: Storage, split: Split, slug: str, shards: Sequence[Shard], *, side: ModelSet) -> Arrays:
    """Return every array that is stored of one set of models, the model's axis first. Raises NotFound."""
    folder = split_key(slug, split.visibility, split.version)
    try:
        if side is not ModelSet.UNLEARNED:
            name = f"hidden/{side}/outputs.safetensors"
            return load(read_split_file(storage, folder, name, manifest_sha256=split.manifest_sha256 or ""))
        pieces = [load(storage.read_verified(str(shard.result_key), str(shard.result_sha256))) for shard in shards]
    except DamagedFile as error:
        raise NotFound(f"The arrays of the {side} models are damaged, and are made again") from error
    if not pieces:
        raise NotFound("The outputs of this submission's runs are not stored")
    common = set.intersection(*(set(piece) for piece in pieces))
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in sorted(common)}


@lru_cache(maxsize=3)  # some 40 MB each, with 512 models and 5,000 examples
def _read(
    storage: Storage, keys: tuple[tuple[str, str], ...], folder: str, manifest_sha256: str
) -> tuple[Outputs, Outputs]:
    pieces = [load(storage.read_verified(key, sha256)) for key, sha256 in keys]
    common = set.intersection(*(set(piece) for piece in pieces)) & set(Outputs.__dataclass_fields__)
    unlearned = Outputs(**{name: np.concatenate([piece[name] for piece in pieces]) for name in common})
    arrays = load(read_split_file(storage, folder, RETRAINED, manifest_sha256=manifest_sha256))
    names = ("confidences", "retain_accuracy", "test_accuracy", "class_accuracy")
    return unlearned, Outputs(**{name: arrays[name] for name in names if name in arrays})


def _chosen(hardness: Array) -> tuple[Example, ...]:
    order = np.argsort(-hardness, kind="stable")
    places = (0, len(order) // 2, len(order) - 1)
    return tuple(
        Example(name, int(order[place]), float(hardness[order[place]]))
        for name, place in zip(EXAMPLES, places, strict=True)
    )


def separations(unlearned: Array, retrained: Array) -> Array:
    """Return the Kolmogorov-Smirnov distance of each column: [n, S] and [m, S] to [S], in 0..1."""
    return np.array([_distance(u, r) for u, r in zip(unlearned.T, retrained.T, strict=True)])


def _distance(u: Array, r: Array) -> float:
    points = np.concatenate((u, r))
    below_u = np.searchsorted(np.sort(u), points, side="right") / len(u)
    below_r = np.searchsorted(np.sort(r), points, side="right") / len(r)
    return float(np.abs(below_u - below_r).max())


def _row(value: float, models: str) -> dict[str, object]:
    return {"value": round(float(value), 6), "models": models}


QUESTIONS = "hidden/questions.json"
ORIGINAL = "hidden/original/outputs.safetensors"  # of the one model that all runs start from
ORIGINALS = "hidden/originals/outputs.safetensors"  # of each run's own


@dataclass(frozen=True)
class AnsweredQuestion:
    """A forget question, its answer in the data, and what three models answer."""

    question: str
    answer: str
    original: Annotated[str | None, Field(description="null where the split stores no answers of its original models")]
    retrained: str
    unlearned: str


@dataclass(frozen=True)
class GeneratedAnswers:
    """The forget questions as one run's model and the retrained model of the same number answer them."""

    run: Annotated[int, Field(description="counts from 0")]
    n_runs: int
    questions: tuple[AnsweredQuestion, ...]


def read_generated_answers(
    storage: Storage, split: Split, slug: str, shards: Sequence[Shard], *, run: int
) -> GeneratedAnswers | None:
    """Return the answers of one run, None where they are not all stored. Raises NotFound without such a run."""
    folder = split_key(slug, split.visibility, split.version)
    read = partial(_read_answer_file, storage, folder, split.manifest_sha256 or "")
    questions = read(QUESTIONS) if shards else None
    retrained = _answers(read(RETRAINED))
    if questions is None or retrained is None:
        return None
    n_runs = min(sum(shard.n_runs for shard in shards), len(retrained))
    if run >= n_runs:
        raise NotFound(f"This submission has no run {run}: its runs are 0 to {n_runs - 1}")
    unlearned = _of_run(storage, shards, run)
    if unlearned is None:
        return None
    asked = json.loads(questions)["sets"]["forget"]
    columns = _of_original(read, run, n=len(asked)), texts_from_array(retrained[run]), unlearned
    answers = [
        AnsweredQuestion(row["question"], row["answer"], original, other, own)
        for row, original, other, own in zip(asked, *columns, strict=True)
    ]
    return GeneratedAnswers(run, n_runs, tuple(answers))


def _of_run(storage: Storage, shards: Sequence[Shard], run: int) -> list[str] | None:
    shard = next((each for each in shards if each.first_run <= run < each.first_run + each.n_runs), None)
    if shard is None:
        return None
    try:
        data = storage.read_verified(shard.result_key or "", shard.result_sha256 or "")
    except (NotFound, DamagedFile):
        return None
    answers = load(data).get(FORGET_ANSWERS)
    return None if answers is None else texts_from_array(answers[run - shard.first_run])


def _of_original(read: Callable[[str], bytes | None], run: int, *, n: int) -> list[str] | list[None]:
    one = _answers(read(ORIGINAL))
    if one is not None:
        return texts_from_array(one[0])
    each = _answers(read(ORIGINALS))
    return [None] * n if each is None else texts_from_array(each[run])


def _answers(data: bytes | None) -> npt.NDArray[np.uint8] | None:
    """Return the answers of stored models as bytes, [models, questions, bytes], or None where there are none."""
    return None if data is None else load(data).get(FORGET_ANSWERS)


def _read_answer_file(storage: Storage, folder: str, manifest_sha256: str, name: str) -> bytes | None:
    try:
        return read_split_file(storage, folder, name, manifest_sha256=manifest_sha256)
    except (NotFound, DamagedFile):
        return None
