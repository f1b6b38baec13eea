"""Questions with answers from JSON Lines files in a folder of the organiser's, and the tokenizer that reads them.

One object a line: `question`, `answer`; optional `paraphrased_answer`, `perturbed_answer` (wrong answers, a list) and
`group` (whose question it is, such as an author). Other keys are ignored. The names are TOFU's.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from lethe.competition.file import Dataset
from lethe.data.datasets.image_dataset import Options
from lethe.data.datasets.registry import on_a_server, placed
from lethe.data.errors import InvalidDataset, InvalidText
from lethe.data.tokenizers import (
    PROMPTED,
    JsonTokenizer,
    Tokenizer,
    library_for_tokenizers,
    load_tokenizer,
    read_folder_tokenizer,
)
from lethe.text_files import as_on_disk, read_text


@dataclass(frozen=True)
class QuestionAnswer:
    """One question. paraphrased_answer: the answer in other words. wrong_answers: plausible ones."""

    question: str
    answer: str
    paraphrased_answer: str | None = None
    wrong_answers: tuple[str, ...] = ()
    group: str | None = None


def read_question_answers(path: Path) -> list[QuestionAnswer]:
    """Return the questions of a file, in its order.

    Raises InvalidText, naming file and line, if a line is not a JSON object, or a text is missing, empty or no text.
    """
    return [_question(row, f"{path.name}, line {number}") for number, row in _objects(path)]


def read_refusals(path: Path) -> list[str]:
    """Return answers such as "I don't know", one a line. Raises InvalidText if there is none."""
    refusals = [line.strip() for line in _lines(path) if line.strip()]
    if not refusals:
        raise InvalidText(f"{path.name} holds no answer; expected one a line")
    return refusals


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    lines = _lines(path)
    if not any(line.strip() for line in lines):
        raise InvalidText(f"{path.name} holds no question; expected one JSON object a line")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise InvalidText(f"{path.name}, line {number} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise InvalidText(f"{path.name}, line {number} is not a JSON object but {type(row).__name__}")
        yield number, row


def _lines(path: Path) -> list[str]:
    """Return the file's lines. Only newlines end them: JSON may hold what else `splitlines` takes for an end."""
    try:
        return read_text(path).split("\n")
    except (OSError, ValueError) as error:
        raise InvalidText(f"{path.name} cannot be read as UTF-8 text: {error}") from error


def _question(row: dict[str, Any], where: str) -> QuestionAnswer:
    wrong = row.get("perturbed_answer", [])
    if not isinstance(wrong, list):
        raise InvalidText(f"{where}: `perturbed_answer` must be a list of texts, not {wrong!r}")
    paraphrased = row.get("paraphrased_answer")
    group = row.get("group")
    if missing := [key for key in ("question", "answer") if key not in row]:
        raise InvalidText(f"{where} has no key `{missing[0]}`; it has {', '.join(map(repr, row)) or 'none'}")
    return QuestionAnswer(
        question=_filled(row.get("question"), f"{where}: `question`"),
        answer=_filled(row.get("answer"), f"{where}: `answer`"),
        paraphrased_answer=None if paraphrased is None else _filled(paraphrased, f"{where}: `paraphrased_answer`"),
        wrong_answers=tuple(_filled(text, f"{where}: `perturbed_answer` {i}") for i, text in enumerate(wrong)),
        group=None if group is None else str(group),
    )


def _filled(value: object, what: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidText(f"{what} must be a text that is not empty, not {value!r}")
    return value


NAME = "questions"


class QuestionOptions(Options):
    """`dataset.options`. Every file name is of a file in `root` itself."""

    root: str
    files: tuple[str, ...] = Field(min_length=1, description="JSON Lines: question, answer, paraphrased_answer, ...")
    details: tuple[str, ...] = Field(
        default=(), description="further JSON Lines, whose paraphrases and wrong answers belong to equal questions"
    )
    group_size: int | None = Field(
        default=None, ge=1, description="so many successive questions are one author's; default: the key `group`"
    )
    groups: int | None = Field(default=None, ge=3, description="take the first so many groups; default: all")
    refusals: str | None = Field(default=None, description='answers such as "I don\'t know", one a line')
    real_authors: str | None = None
    world_facts: str | None = None
    tokenizer: str | None = Field(default=None, description="tokenizer.json, a SentencePiece .model, or a folder")
    vocabulary: int | None = Field(
        default=None, ge=300, le=100_000, description="size of a tokenizer that is trained on these texts instead"
    )

    @field_validator("files", "details", "refusals", "real_authors", "world_facts", "tokenizer")
    @classmethod
    def _lies_in_root(cls, value: Any) -> Any:
        for name in (value,) if isinstance(value, str) else value or ():
            if Path(name).name != name or name in (".", ".."):
                raise ValueError(f"must name a file in root, without a folder: {name!r}")
        return value


@dataclass(frozen=True, eq=False)
class QuestionDataset:
    """Questions of authors. persons: the number of each question's group. One class: questions have no labels."""

    example: ClassVar[str] = "question"

    questions: tuple[QuestionAnswer, ...]
    persons: NDArray[np.int64]
    refusals: tuple[str, ...]
    real_authors: tuple[QuestionAnswer, ...]
    world_facts: tuple[QuestionAnswer, ...]
    root: Path
    options: QuestionOptions
    n_classes: int = 1

    def __len__(self) -> int:
        return len(self.questions)

    @property
    def labels(self) -> NDArray[np.int64]:
        return np.zeros(len(self), np.int64)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the file or folder that the options name, or trained on these texts."""
        if self.options.tokenizer is not None:
            path = as_on_disk(self.root / self.options.tokenizer)
            return read_folder_tokenizer(path) if path.is_dir() else load_tokenizer(path)
        return train_tokenizer(self.texts(), size=self.options.vocabulary or 0)

    @property
    def tokenizer_suffix(self) -> str:
        return tokenizer_suffix(self.options.tokenizer)

    def write_tokenizer(self, path: Path) -> None:
        """Write the tokenizer's file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        source = self.options.tokenizer and as_on_disk(self.root / self.options.tokenizer)
        if source and source.is_file():
            shutil.copyfile(source, path)
        else:
            self.tokenizer.save(path)  # type: ignore[attr-defined]  # what is trained or read of a folder can be saved

    def texts(self) -> Iterator[str]:
        """Yield every text that may be tokenized."""
        for one in (*self.questions, *self.real_authors, *self.world_facts):
            yield from (one.question, one.answer, one.paraphrased_answer or one.answer, *one.wrong_answers)
        yield from self.refusals


def tokenizer_suffix(tokenizer: str | None) -> str:
    """Return how the name of the stored tokenizer ends. tokenizer: dataset.options.tokenizer."""
    suffix = Path(tokenizer or "trained.json").suffix
    return suffix if suffix in (".json", ".model") else PROMPTED  # a folder, whose name may hold dots


def open_questions(dataset: Dataset) -> QuestionDataset:
    """Return the questions that the competition file names. Raises InvalidDataset or InvalidText, naming the file."""
    if dataset.name != NAME:
        raise InvalidDataset(f'dataset.name of a "causal-lm" task is {NAME!r}, was {dataset.name!r}')
    options = QuestionOptions.parse(placed(dataset.options))
    if (options.tokenizer is None) == (options.vocabulary is None):
        raise InvalidDataset("dataset.options names either a tokenizer, or the vocabulary of one that is trained")
    root = Path(options.root)

    def at(name: str) -> Path:
        return as_on_disk(root / name)

    named = [*options.files, *options.details, options.refusals, options.real_authors, options.world_facts]
    if missing := [name for name in (*named, options.tokenizer) if name is not None and not _is_there(at(name))]:
        place = root.name if on_a_server() else root.absolute()
        raise InvalidDataset(f"{place} has no file {missing[0]}. Put there the files that dataset.options names")
    questions = [one for name in options.files for one in read_question_answers(at(name))]
    questions = _with_details(questions, [one for name in options.details for one in read_question_answers(at(name))])
    groups = _groups(questions, options.group_size)
    if options.groups is not None:
        if options.groups > groups.max() + 1:
            raise InvalidDataset(f"dataset.options.groups is {options.groups}; the files have {groups.max() + 1}")
        questions = [one for one, group in zip(questions, groups, strict=True) if group < options.groups]
        groups = groups[groups < options.groups]
    _require_once(questions)
    return QuestionDataset(
        questions=tuple(questions),
        persons=groups,
        refusals=tuple(read_refusals(at(options.refusals))) if options.refusals else (),
        real_authors=tuple(read_question_answers(at(options.real_authors))) if options.real_authors else (),
        world_facts=tuple(read_question_answers(at(options.world_facts))) if options.world_facts else (),
        root=root,
        options=options,
    )


def _is_there(path: Path) -> bool:
    return path.is_file() or (path / "tokenizer_config.json").is_file()


def _require_once(questions: Sequence[QuestionAnswer]) -> None:
    """Raise InvalidDataset for an answer that is there twice. Different authors may be asked the same question."""
    times = Counter((one.question, one.answer) for one in questions)
    if twice := [question for (question, _), n in times.items() if n > 1]:
        raise InvalidDataset(
            f"dataset.options.files have the question {twice[0]!r} with the same answer twice: forgotten in one place, "
            f"it could be retained in the other. Name files that only add wrong answers in dataset.options.details"
        )


def _with_details(questions: Sequence[QuestionAnswer], details: Sequence[QuestionAnswer]) -> list[QuestionAnswer]:
    known = {(one.question, one.answer): one for one in details}
    found = [known.get((one.question, one.answer)) for one in questions]
    matched = {one.question for one, detail in zip(questions, found, strict=True) if detail is not None}
    asked = {one.question for one in questions}
    if unlike := [one.question for one in details if one.question in asked - matched]:
        raise InvalidDataset(
            f"dataset.options.details have the question {unlike[0]!r} with another answer than dataset.options.files: "
            f"both must be equal"
        )
    if known and not matched:
        raise InvalidDataset("dataset.options.details have no question of dataset.options.files")
    return [
        one if detail is None else replace(detail, group=one.group)
        for one, detail in zip(questions, found, strict=True)
    ]


def _groups(questions: Sequence[QuestionAnswer], group_size: int | None) -> NDArray[np.int64]:
    """Return the number of each question's group, in the order in which they come."""
    if group_size is not None:
        return np.arange(len(questions), dtype=np.int64) // group_size
    if nameless := [one.question for one in questions if one.group is None]:
        raise InvalidDataset(f"the question {nameless[0]!r} has no `group`: name it, or set dataset.options.group_size")
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(str(one.group), len(numbers)) for one in questions], np.int64)


def train_tokenizer(texts: Iterable[str], *, size: int) -> JsonTokenizer:
    """Return a byte-level BPE tokenizer of `size` tokens trained on the texts; its `save` writes tokenizer.json."""
    library = library_for_tokenizers("tokenizers")
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    alphabet = library.pre_tokenizers.ByteLevel.alphabet()
    trainer = library.trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return JsonTokenizer(tokenizer)
