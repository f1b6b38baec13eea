"""The pages beside the description, and questions to organisers."""

from typing import Annotated

from fastapi import Form, Request, Response
from sqlalchemy.orm import Session

from lethe.competition.pages_section import TITLES
from lethe.errors import AppError, NotFound
from server.competitions import questions
from server.deps import SessionDep
from server.models.account import Account
from server.web.cookies import Flash
from server.web.deps import MemberDep, Place, PlaceDep, ViewerDep
from server.web.page_router import page_router
from server.web.rendering import page, redirect

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
def ask(request: Request, session: SessionDep, place: PlaceDep, viewer: MemberDep, *, text: Text = "") -> Response:
    """Ask the organisers."""
    try:
        with session.begin_nested():
            questions.ask(session, place.competition, text=text, account=viewer)
    except AppError as error:
        return _page(request, session, place, viewer, error=error, text=text)
    done = Flash("good", "Your question is sent to the organisers.")
    return redirect(request, f"/competitions/{place.competition.slug}/questions", flash=done)


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
