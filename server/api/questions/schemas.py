"""What goes in and out of the routes of questions and pages."""

from dataclasses import dataclass
from datetime import datetime

from pydantic import Field

from server.api.schema import In, Out
from server.competitions import questions
from server.competitions.questions import ShownQuestion
from server.models.question import Question


class NewQuestion(In):
    """A question to the organisers."""

    text: str = Field(min_length=1, max_length=4000, examples=["May we use data of our own?"])


@dataclass(frozen=True)
class AskedQuestion(ShownQuestion):
    """A question as organisers read it."""

    asked_by: str

    @classmethod
    def for_organisers(cls, row: Question) -> "AskedQuestion":
        return cls(**vars(questions.shown(row, None)) | {"question": row.text, "asked_by": row.account.name})


class QuestionsPage(Out):
    """A page of all questions."""

    questions: list[AskedQuestion]
    has_more: bool
    open: int = Field(description="how many have no answer")


class Answer(In):
    """An answer, to whoever asked or to all."""

    answer: str = Field(min_length=1, max_length=20_000, description="Markdown")
    to_all: bool = False
    question: str = Field(default="", max_length=4000, description="for all: the question in other words")


class PageOut(Out):
    """A page beside the description."""

    name: str = Field(examples=["rules"])
    title: str = Field(examples=["Rules"])
    text: str = Field(description="Markdown")


class PageVersion(Out):
    """What a page or the terms were at one time."""

    version: int
    text: str
    author: str
    created_at: datetime
