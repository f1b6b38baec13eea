"""What language models answer to the forget questions: the original, a retrained and an unlearned one."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field
from safetensors.numpy import load

from lethe.errors import NotFound
from lethe.evaluation.sample_answer_files import FORGET_ANSWERS, texts_from_array
from server.models.competition import Split
from server.models.evaluation import Shard
from server.storage import DamagedFile, Storage, split_key
from server.submission_analysis.model_outputs import RETRAINED, read_split_file

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
    read = partial(_read, storage, folder, split.manifest_sha256 or "")
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
    found = [
        AnsweredQuestion(row["question"], row["answer"], original, other, own)
        for row, original, other, own in zip(asked, *columns, strict=True)
    ]
    return GeneratedAnswers(run, n_runs, tuple(found))


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


def _read(storage: Storage, folder: str, manifest_sha256: str, name: str) -> bytes | None:
    try:
        return read_split_file(storage, folder, name, manifest_sha256=manifest_sha256)
    except (NotFound, DamagedFile):
        return None
