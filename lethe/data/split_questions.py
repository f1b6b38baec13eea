"""The questions of a prepared split as text, which its sets hold as tokens alone, and the tokenizer between them.

Both are hidden: participants get tokens, and as text a few questions of the public sample (`sample_answers.json`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lethe.data.datasets.questions import QuestionDataset
from lethe.data.errors import DamagedSplit
from lethe.data.files import read_json, write_json
from lethe.data.question_answers import QuestionAnswer
from lethe.data.tokenizers import Tokenizer, load_tokenizer
from lethe.data.vocabulary_cut import CutTokenizer

QUESTIONS = "hidden/questions.json"
TOKENIZER_STEM = "hidden/tokenizer"


@dataclass(frozen=True)
class SplitQuestions:
    """sets: by name; forget, retain (those that are measured), holdout, real_authors, world_facts."""

    sets: Mapping[str, tuple[QuestionAnswer, ...]]
    tokenizer: Tokenizer
    max_new_tokens: int

    @classmethod
    def read(cls, split_dir: Path) -> "SplitQuestions":
        """Return the questions of a prepared split. Raises DamagedSplit, SplitNotPrepared or InvalidTokenizer."""
        stored = read_json(split_dir / QUESTIONS)
        try:
            tokenizer = load_tokenizer(split_dir / f"{TOKENIZER_STEM}{stored['tokenizer_suffix']}")
            if stored["kept_ids"] is not None:
                tokenizer = CutTokenizer(tokenizer, stored["kept_ids"])
            sets = {name: tuple(_question(row) for row in rows) for name, rows in stored["sets"].items()}
            return cls(sets, tokenizer, int(stored["max_new_tokens"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedSplit(f"{split_dir / QUESTIONS} is damaged: prepare the split again") from error


def write_split_questions(
    split_dir: Path,
    dataset: QuestionDataset,
    sets: Mapping[str, Sequence[QuestionAnswer]],
    *,
    kept_ids: Sequence[int] | None,
    max_new_tokens: int,
) -> None:
    """Write questions.json and the tokenizer's file. kept_ids: tokens of a reduced vocabulary, None: all."""
    stored = {
        "sets": {name: [asdict(one) for one in questions] for name, questions in sets.items()},
        "tokenizer_suffix": dataset.tokenizer_suffix,
        "kept_ids": None if kept_ids is None else list(kept_ids),
        "max_new_tokens": max_new_tokens,
    }
    write_json(split_dir / QUESTIONS, stored)
    dataset.write_tokenizer(split_dir / f"{TOKENIZER_STEM}{dataset.tokenizer_suffix}")


def _question(row: dict[str, Any]) -> QuestionAnswer:
    return QuestionAnswer(**{**row, "wrong_answers": tuple(row["wrong_answers"])})
