"""/api/v1/competitions/{slug}: the pages beside the description, and questions to organisers."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query, status
from pydantic import Field

from lethe.competition.sections import TITLES
from lethe.errors import NotFound
from server.api.auth_dependencies import CurrentAccount, OptionalAccount, VisibleCompetition, organiser_routes
from server.api.auth_dependencies import OrganisedCompetition as Organised
from server.api.schema import In, Out
from server.competitions import questions
from server.competitions.questions import ShownQuestion
from server.competitions.stored_file import stored_file
from server.deps import SessionDep
from server.models.participation import Question
from server.problem_details import problems


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


TextName = Literal["terms", "data", "rules", "evaluation", "prizes", "faq"]

router = APIRouter(prefix="/competitions/{slug}", tags=["teams"])
organisers = organiser_routes()


@router.get("/pages", responses=problems(401, 404))
def list_pages(competition: VisibleCompetition) -> list[PageOut]:
    """List the pages beside the description, with their texts."""
    shown = stored_file(competition).pages.shown
    return [PageOut(name=name, title=TITLES[name], text=text) for name, text in shown.items()]


@router.get("/pages/{name}", responses=problems(401, 404))
def show_page(name: str, competition: VisibleCompetition) -> PageOut:
    """Show a page: data, rules, evaluation, prizes, faq."""
    text = stored_file(competition).pages.shown.get(name)
    if text is None:
        raise NotFound(f"{competition.slug} has no page {name!r}")
    return PageOut(name=name, title=TITLES[name], text=text)


@router.get("/questions", responses=problems(401, 404))
def list_questions(
    session: SessionDep, competition: VisibleCompetition, account: OptionalAccount
) -> list[ShownQuestion]:
    """List the questions that are answered to all, and your own."""
    return questions.shown_to(session, competition, account)


@router.post("/questions", status_code=status.HTTP_201_CREATED, responses=problems(401, 403, 404, 409))
def ask(
    body: NewQuestion, session: SessionDep, competition: VisibleCompetition, account: CurrentAccount
) -> ShownQuestion:
    """Ask the organisers. They answer you, or all without your name."""
    row = questions.ask(session, competition, text=body.text, account=account)
    return questions.shown(row, account)


@organisers.get("/all-questions")
def list_all_questions(
    session: SessionDep,
    competition: Organised,
    *,
    only_open: Annotated[bool, Query(alias="open", description="only those without an answer")] = False,
    page: Annotated[int, Query(ge=1, le=100_000, description="fifty a page")] = 1,
) -> QuestionsPage:
    """List all questions with who asked, the newest first."""
    rows, has_more = questions.page_of_all(session, competition, only_open=only_open, page=page)
    return QuestionsPage(
        questions=[AskedQuestion.for_organisers(row) for row in rows],
        has_more=has_more,
        open=questions.count_open(session, competition),
    )


@organisers.put("/questions/{question_id}/answer")
def answer(
    question_id: str, body: Answer, session: SessionDep, *, competition: Organised, account: CurrentAccount
) -> AskedQuestion:
    """Answer a question, or answer it otherwise. Those who may read it are written to."""
    row = questions.answer(
        session, competition, question_id, text=body.answer, to_all=body.to_all, shown_text=body.question, actor=account
    )
    return AskedQuestion.for_organisers(row)


@organisers.get("/texts/{name}/versions")
def list_versions(name: TextName, session: SessionDep, competition: Organised) -> list[PageVersion]:
    """List every version of a page or of the terms, the newest first."""
    versions = questions.versions(session, competition, name)
    return [PageVersion.read(row, author=author) for row, author in versions]
