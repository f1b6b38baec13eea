"""Taking part: what is missing, the terms, a link of the organisers, a request to them."""

from typing import Annotated

from fastapi import Form, Request, Response
from sqlalchemy.orm import Session

from lethe.errors import AppError, InvalidInput
from server.competitions import admission_links, participants, participation, texts
from server.competitions import service as competitions
from server.deps import SessionDep
from server.models.account import Account
from server.web.cookies import Flash
from server.web.deps import MemberDep, Place, PlaceDep, find_place
from server.web.page_router import page_router
from server.web.rendering import page, redirect

router = page_router()

Text = Annotated[str, Form(max_length=1000)]


@router.get("/competitions/{slug}/join")
def join_page(slug: str, request: Request, session: SessionDep, viewer: MemberDep, *, token: str = "") -> Response:
    """Show what is missing to take part; with a link's token, ask before it is used: a link alone changes nothing."""
    if token:
        competition = admission_links.find(session, slug, token[:200])
        return page(request, "invited.html", competition=competition, token=token[:200])
    place = find_place(session, competitions.get(session, slug, account=viewer), viewer)
    if place.whole is not None:
        return redirect(request, f"/competitions/{place.whole.slug}/join")
    return _page(request, session, place, viewer)


@router.post("/competitions/{slug}/join")
def use_link(slug: str, request: Request, session: SessionDep, viewer: MemberDep, *, token: Text = "") -> Response:
    """Take part by a link, also in a competition that the reader does not see yet."""
    competition = admission_links.use(session, slug, token[:200], account=viewer)
    place = find_place(session, competition, viewer)
    return _done(request, session, place, viewer, f"You are admitted to {competition.title}.")


@router.post("/competitions/{slug}/participation")
def act(
    request: Request,
    session: SessionDep,
    place: PlaceDep,
    viewer: MemberDep,
    *,
    act: Text = "",
    version: int = Form(default=0),
    message: Text = "",
) -> Response:
    """Accept the terms, or ask the organisers."""
    try:
        with session.begin_nested():
            if act == "accept":
                texts.accept_terms(session, place.competition, version=version, account=viewer)
                done = "The terms are accepted."
            elif act == "ask":
                participants.ask(session, place.competition, message=message, account=viewer)
                done = "The organisers are asked."
            else:
                raise InvalidInput(f"{act!r} is not an act; allowed are accept, ask")
    except AppError as error:
        return _page(request, session, place, viewer, error=error, message=message)
    return _done(request, session, place, viewer, done)


def _done(request: Request, session: Session, place: Place, viewer: Account, text: str) -> Response:
    """Send the reader on: to what is missing still, else to the competition."""
    may = participation.standing(session, place.competition, viewer).may_take_part
    rest = "" if may else "/join"
    return redirect(request, f"/competitions/{place.competition.slug}{rest}", flash=Flash("good", text))


def _page(
    request: Request,
    session: Session,
    place: Place,
    viewer: Account,
    *,
    error: AppError | None = None,
    message: str = "",
) -> Response:
    standing = participation.standing(session, place.competition, viewer)
    return page(request, "join.html", place=place, tab="", standing=standing, error=error, message=message)
