"""Questions to organisers, and the pages beside the description, for organisers."""

from typing import Annotated, Any

from fastapi import Form, Query, Response

from lethe.competition.sections import TITLES
from lethe.errors import AppError, NotFound
from server.competitions import questions
from server.web.page_router import page_router
from server.web.place_request import OrganiserDep, OrganiserRequest, change

router = page_router()

LongText = Annotated[str, Form(max_length=400_000)]
Short = Annotated[str, Form(max_length=4000)]
PageName = Annotated[str, Query(max_length=20)]
PageNumber = Annotated[int, Query(alias="page", ge=1, le=100_000)]


@router.get("/organise/{slug}/questions")
def questions_page(
    asked: OrganiserDep,
    *,
    only_open: Annotated[bool, Query(alias="open")] = False,
    page_number: PageNumber = 1,
) -> Response:
    return _questions(asked, only_open=only_open, page_number=page_number)


@router.post("/organise/{slug}/questions")
def answer(
    asked: OrganiserDep,
    *,
    question: Short = "",
    text: LongText = "",
    shown_text: Short = "",
    to_all: bool = Form(default=False),
) -> Response:
    """Answer a question, or answer it otherwise."""
    try:
        with asked.session.begin_nested():
            questions.answer(
                asked.session,
                asked.competition,
                question,
                text=text.replace("\r\n", "\n"),
                to_all=to_all,
                shown_text=shown_text,
                actor=asked.viewer,
            )
    except AppError as error:
        return _questions(asked, error=error)
    return asked.done("Answered.", to="/questions")


@router.get("/organise/{slug}/pages")
def texts_page(asked: OrganiserDep, *, name: PageName = "data") -> Response:
    return _texts(asked, name=name)


@router.post("/organise/{slug}/pages")
def change_text(
    asked: OrganiserDep, *, name: Short = "", text: LongText = "", act: Short = "preview", reason: Short = ""
) -> Response:
    """Show a page as participants will see it, or publish it. An empty text takes the page away."""
    text = text.replace("\r\n", "\n").strip()
    try:
        if name not in TITLES:
            raise NotFound(f"There is no page {name!r}; there are {', '.join(TITLES)}")
        change(asked, {"pages": {name: text}}, act=act, reason=reason)
    except AppError as error:
        return _texts(asked, name=name if name in TITLES else "data", text=text, reason=reason, error=error)
    if act == "preview":
        return _texts(asked, name=name, text=text, reason=reason, preview=text)
    return asked.done(f"The page {TITLES[name]} is changed.", to=f"/pages?name={name}")


def _questions(
    asked: OrganiserRequest, *, only_open: bool = False, page_number: int = 1, error: AppError | None = None
) -> Response:
    found, has_more = questions.page_of_all(asked.session, asked.competition, only_open=only_open, page=page_number)
    return asked.page(
        "questions.html",
        tab="questions",
        rows=found,
        has_more=has_more,
        page_number=page_number,
        only_open=only_open,
        error=error,
    )


def _texts(asked: OrganiserRequest, *, name: str, text: str | None = None, **context: Any) -> Response:
    if name not in TITLES:
        raise NotFound(f"There is no page {name!r}; there are {', '.join(TITLES)}")
    shown = {"error": None, "preview": "", "reason": "", **context}
    return asked.page(
        "pages.html",
        tab="control",
        name=name,
        titles=TITLES,
        text=getattr(asked.place.file.pages, name) if text is None else text,
        versions=questions.versions(asked.session, asked.competition, name),
        **shown,
    )
