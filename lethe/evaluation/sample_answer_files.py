"""The files that hold language models' answers to forget questions of the public sample: their form and their bounds.

Anyone who takes part may read them: the sample is cut from the validation set.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

FORGET_ANSWERS = "forget_answer_text"  # the array of outputs that holds a model's answers to the forget questions


def texts_as_array(texts: Sequence[str], *, width: int) -> npt.NDArray[np.uint8]:
    """Return the texts as UTF-8 bytes, shape (n, width), cut off or padded with 0."""
    rows = [text.replace("\0", "").encode()[:width].ljust(width, b"\0") for text in texts]
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(texts), width)


def texts_from_array(array: npt.NDArray[np.uint8]) -> list[str]:
    """Return what `texts_as_array` was given; a character that was cut through is left out."""
    return [bytes(row).rstrip(b"\0").decode(errors="ignore") for row in array]


SAMPLE_ANSWERS = "hidden/sample_answers.json"  # not mounted: no run is to tell the sample from other data by it
MAX_QUESTIONS = 20
MAX_CHARACTERS = 1000  # of a text; a longer one is cut


def plain_text(text: str) -> str:
    """Return one line that steers no terminal and no page: at most MAX_CHARACTERS characters, all printable."""
    line = "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))
    return line if len(line) <= MAX_CHARACTERS else line[: MAX_CHARACTERS - 1] + "…"


Text = Annotated[str, AfterValidator(plain_text)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)  # other versions may write more keys


class SampleQuestion(_Part):
    """A question, its answer in the data, and what two models answer; None of a model whose losses are not finite."""

    question: Text
    answer: Text
    original: Text | None
    retrained: Text | None


class SampleQuestions(_Part):
    """The content of `hidden/sample_answers.json`."""

    questions: Annotated[tuple[SampleQuestion, ...], Field(max_length=MAX_QUESTIONS)]


class UnlearnedAnswers(_Part):
    """What the model of a run on the sample answers; None if its losses are not finite.

    questions_sha256: of the `hidden/sample_answers.json` whose questions were asked.
    """

    questions_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    answers: Annotated[tuple[Text, ...], Field(max_length=MAX_QUESTIONS)] | None
