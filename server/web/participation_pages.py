"""Taking part: what is missing, the terms, a link of the organisers, a request to them."""

from typing import Annotated

from fastapi import Form, Request, Response

from lethe.errors import AppError, InvalidInput
from server.competitions import competitions, participants, participation, questions
from server.deps import SessionDep
from server.web.deps import MemberDep, MemberRequestDep, PlaceRequest, find_place
from server.web.page_router import page_router
from server.web.rendering import page, redirect

router = page_router()

Text = Annotated[str, Form(max_length=1000)]


@router.get("/competitions/{slug}/join")
def join_page(slug: str, request: Request, session: SessionDep, viewer: MemberDep, *, token: str = "") -> Response:
    """Show what is missing to take part; with a link's token, ask before it is used: a link alone changes nothing."""
    if token:
        competition = participants.find(session, slug, token[:200])
        return page(request, "invited.html", competition=competition, token=token[:200])
    place = find_place(session, competitions.get(session, slug, account=viewer), viewer)
    if place.whole is not None:
        return redirect(request, f"/competitions/{place.whole.slug}/join")
    return _page(PlaceRequest(request, session, place, viewer))


@router.post("/competitions/{slug}/join")
def use_link(slug: str, request: Request, session: SessionDep, viewer: MemberDep, *, token: Text = "") -> Response:
    """Take part by a link, also in a competition that the reader does not see yet."""
    competition = participants.use(session, slug, token[:200], account=viewer)
    place = find_place(session, competition, viewer)
    return _done(PlaceRequest(request, session, place, viewer), f"You are admitted to {competition.title}.")


@router.post("/competitions/{slug}/participation")
def act(asked: MemberRequestDep, *, act: Text = "", version: int = Form(default=0), message: Text = "") -> Response:
    """Accept the terms, or ask the organisers."""
    try:
        with asked.session.begin_nested():
            if act == "accept":
                questions.accept_terms(asked.session, asked.competition, version=version, account=asked.viewer)
                done = "The terms are accepted."
            elif act == "ask":
                participants.ask(asked.session, asked.competition, message=message, account=asked.viewer)
                done = "The organisers are asked."
            else:
                raise InvalidInput(f"{act!r} is not an act; allowed are accept, ask")
    except AppError as error:
        return _page(asked, error=error, message=message)
    return _done(asked, done)


def _done(asked: PlaceRequest, text: str) -> Response:
    """Send the reader on: to what is missing still, else to the competition."""
    may = participation.standing(asked.session, asked.competition, asked.viewer).may_take_part
    return asked.done(text, to="" if may else "/join")


def _page(asked: PlaceRequest, *, error: AppError | None = None, message: str = "") -> Response:
    standing = participation.standing(asked.session, asked.competition, asked.viewer)
    return asked.page("join.html", tab="", standing=standing, error=error, message=message)
