"""The pages beside the description, and questions to organisers."""

from typing import Annotated

from fastapi import Form, Request, Response
from sqlalchemy.orm import Session

from lethe.competition.sections import TITLES
from lethe.errors import AppError, NotFound
from server.competitions import questions
from server.deps import SessionDep
from server.models.account import Account
from server.web.deps import MemberRequestDep, Place, PlaceDep, ViewerDep
from server.web.page_router import page_router
from server.web.rendering import page

router = page_router(is_public=True)

Text = Annotated[str, Form(max_length=8000)]


@router.get("/competitions/{slug}/pages/{name}")
def text_page(name: str, request: Request, place: PlaceDep) -> Response:
    text = place.file.pages.shown.get(name)
    if text is None:
        raise NotFound(f"{place.competition.slug} has no page {name!r}")
    return page(request, "text_page.html", place=place, tab="", name=name, titles=TITLES, text=text)


@router.get("/competitions/{slug}/questions")
def questions_page(request: Request, session: SessionDep, place: PlaceDep, viewer: ViewerDep) -> Response:
    return _page(request, session, place, viewer)


@router.post("/competitions/{slug}/questions")
def ask(asked: MemberRequestDep, *, text: Text = "") -> Response:
    """Ask the organisers."""
    try:
        with asked.session.begin_nested():
            questions.ask(asked.session, asked.competition, text=text, account=asked.viewer)
    except AppError as error:
        return _page(asked.request, asked.session, asked.place, asked.viewer, error=error, text=text)
    return asked.done("Your question is sent to the organisers.", to="/questions")


def _page(
    request: Request,
    session: Session,
    place: Place,
    viewer: Account | None,
    *,
    error: AppError | None = None,
    text: str = "",
) -> Response:
    return page(
        request,
        "questions.html",
        place=place,
        tab="questions",
        questions=questions.shown_to(session, place.competition, viewer),
        longest=questions.QUESTION_LENGTH,
        error=error,
        text=text,
    )
