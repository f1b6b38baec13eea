"""The team page: who is in it, what it is called, who may join, and which teams come together."""

from collections.abc import Callable
from typing import Annotated

from fastapi import Form, Request, Response
from sqlalchemy.orm import Session

from lethe.errors import AppError, InvalidInput
from server.db import now
from server.deps import SessionDep
from server.models.account import Account
from server.teams import joining, merging
from server.teams import service as teams
from server.web.cookies import Flash
from server.web.deps import MemberDep, Place, PlaceDep
from server.web.page_router import page_router
from server.web.rendering import page, redirect

router = page_router()

Text = Annotated[str, Form(max_length=300)]


@router.get("/competitions/{slug}/team")
def team_page(request: Request, session: SessionDep, place: PlaceDep, viewer: MemberDep) -> Response:
    return _page(request, session, place, viewer)


@router.post("/competitions/{slug}/team")
def save_team(
    request: Request, session: SessionDep, place: PlaceDep, viewer: MemberDep, *, name: Text = ""
) -> Response:
    """Make a team, or give the own one another name."""
    try:
        with session.begin_nested():
            if place.team is None:
                teams.create(session, place.competition, viewer, name=name)
            else:
                joining.check_leader(place.team, viewer)
                teams.rename_own(session, place.competition, place.team, name=name, actor=viewer)
    except AppError as error:
        return _page(request, session, place, viewer, error=error, name=name)
    return _back(request, place, "The name is saved.")


@router.post("/competitions/{slug}/team/invite")
def invite(request: Request, session: SessionDep, place: PlaceDep, viewer: MemberDep, *, name: Text = "") -> Response:
    """Invite one person by name, or make a link that brings in one person. The link is shown this once."""
    team = teams.own_team(session, place.competition, viewer)
    try:
        issued = joining.invite(session, team, actor=viewer, name=name.strip() or None)
    except AppError as error:
        return _page(request, session, place, viewer, error=error)
    if issued.token is None:
        return _back(request, place, f"{name.strip()} is invited.")
    link = f"{request.base_url}competitions/{place.competition.slug}/team/join?token={issued.token}"
    response = _page(request, session, place, viewer, link=link)
    response.headers["Cache-Control"] = "no-store"
    return response


@router.get("/competitions/{slug}/team/join")
def join_page(
    request: Request, session: SessionDep, place: PlaceDep, viewer: MemberDep, *, token: str = ""
) -> Response:
    """Ask before an invitation's link is used: a link alone changes nothing."""
    return _page(request, session, place, viewer, token=token[:200])


@router.post("/competitions/{slug}/team/act")
def act(
    request: Request,
    session: SessionDep,
    place: PlaceDep,
    viewer: MemberDep,
    *,
    act: Text = "",
    subject: Text = "",
) -> Response:
    """Accept, decline or revoke an invitation; leave; hand the lead on; ask for, agree to or refuse a merge."""
    try:
        with session.begin_nested():
            done = _act(session, place, viewer, act=act, subject=subject.strip())
    except AppError as error:
        return _page(request, session, place, viewer, error=error)
    return _back(request, place, done)


def _act(session: Session, place: Place, viewer: Account, *, act: str, subject: str) -> str:
    """Carry out one act. Return what was done, as text."""
    here = (session, place.competition)
    if act == "join":
        return f"You are in {joining.accept_link(*here, subject, account=viewer).name}."
    if act == "accept":
        return f"You are in {joining.accept(*here, subject, account=viewer).name}."
    if act == "agree":
        return f"The teams are one: {merging.agree(*here, subject, actor=viewer).name}."
    quiet: dict[str, tuple[Callable[[], object], str]] = {
        "decline": (lambda: joining.decline(*here, subject, account=viewer), "The invitation is turned down."),
        "revoke": (
            lambda: joining.revoke(session, teams.own_team(*here, viewer), subject, actor=viewer),
            "The invitation is revoked.",
        ),
        "leave": (lambda: joining.leave(*here, viewer), "You have left the team."),
        "hand-over": (
            lambda: joining.hand_over(session, teams.own_team(*here, viewer), name=subject, actor=viewer),
            f"{subject} leads the team now.",
        ),
        "merge": (lambda: merging.ask(*here, into=subject, actor=viewer), f"{subject} is asked."),
        "refuse": (lambda: merging.refuse(*here, subject, actor=viewer), "The request is gone."),
    }
    if act not in quiet:
        raise InvalidInput(f"{act!r} is not an act of a team")
    carry_out, done = quiet[act]
    carry_out()
    return done


def _back(request: Request, place: Place, done: str) -> Response:
    return redirect(request, f"/competitions/{place.competition.slug}/team", flash=Flash("good", done))


def _page(
    request: Request,
    session: Session,
    place: Place,
    viewer: Account,
    *,
    error: AppError | None = None,
    name: str | None = None,
    link: str = "",
    token: str = "",
) -> Response:
    team = place.team
    leads = team is not None and team.leader_id == viewer.id
    return page(
        request,
        "team.html",
        place=place,
        tab="team",
        leads=leads,
        members=teams.members(session, team) if team else [],
        invitations=joining.open_invitations(session, team, actor=viewer) if team and leads else [],
        invited=joining.invitations_to(session, place.competition, viewer),
        merges=merging.requests(session, team) if team else [],
        may_grow=joining.may_grow(place.competition, at=now()),
        may_leave=team is not None and joining.may_leave(session, team),
        error=error,
        name=name if name is not None else team.name if team else viewer.name,
        link=link,
        token=token,
    )
