"""The team page: who is in it, what it is called, who may join, and which teams come together."""

from collections.abc import Callable
from typing import Annotated

from fastapi import Form, Response

from lethe.errors import AppError, InvalidInput
from server.db import now
from server.teams import joining, teams
from server.web.deps import MemberRequestDep, PlaceRequest
from server.web.page_router import page_router

router = page_router()

Text = Annotated[str, Form(max_length=300)]


@router.get("/competitions/{slug}/team")
def team_page(asked: MemberRequestDep) -> Response:
    return _page(asked)


@router.post("/competitions/{slug}/team")
def save_team(asked: MemberRequestDep, *, name: Text = "") -> Response:
    """Make a team, or give the own one another name."""
    team = asked.place.team
    try:
        with asked.session.begin_nested():
            if team is None:
                teams.create(asked.session, asked.competition, asked.viewer, name=name)
            else:
                joining.check_leader(team, asked.viewer)
                teams.rename_own(asked.session, asked.competition, team, name=name, actor=asked.viewer)
    except AppError as error:
        return _page(asked, error=error, name=name)
    return asked.done("The name is saved.", to="/team")


@router.post("/competitions/{slug}/team/invite")
def invite(asked: MemberRequestDep, *, name: Text = "") -> Response:
    """Invite one person by name, or make a link that brings in one person. The link is shown this once."""
    team = teams.own_team(asked.session, asked.competition, asked.viewer)
    try:
        issued = joining.invite(asked.session, team, actor=asked.viewer, name=name.strip() or None)
    except AppError as error:
        return _page(asked, error=error)
    if issued.token is None:
        return asked.done(f"{name.strip()} is invited.", to="/team")
    link = f"{asked.request.base_url}competitions/{asked.competition.slug}/team/join?token={issued.token}"
    response = _page(asked, link=link)
    response.headers["Cache-Control"] = "no-store"
    return response


@router.get("/competitions/{slug}/team/join")
def join_page(asked: MemberRequestDep, *, token: str = "") -> Response:
    """Ask before an invitation's link is used: a link alone changes nothing."""
    return _page(asked, token=token[:200])


@router.post("/competitions/{slug}/team/act")
def act(asked: MemberRequestDep, *, act: Text = "", subject: Text = "") -> Response:
    """Accept, decline or revoke an invitation; leave; hand the lead on; ask for, agree to or refuse a merge."""
    try:
        with asked.session.begin_nested():
            done = _act(asked, act=act, subject=subject.strip())
    except AppError as error:
        return _page(asked, error=error)
    return asked.done(done, to="/team")


def _act(asked: PlaceRequest, *, act: str, subject: str) -> str:
    """Carry out one act. Return what was done, as text."""
    session, viewer = asked.session, asked.viewer
    here = (session, asked.competition)
    if act == "join":
        return f"You are in {joining.accept_link(*here, subject, account=viewer).name}."
    if act == "accept":
        return f"You are in {joining.accept(*here, subject, account=viewer).name}."
    if act == "agree":
        return f"The teams are one: {joining.agree(*here, subject, actor=viewer).name}."
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
        "merge": (lambda: joining.ask(*here, into=subject, actor=viewer), f"{subject} is asked."),
        "refuse": (lambda: joining.refuse(*here, subject, actor=viewer), "The request is gone."),
    }
    if act not in quiet:
        raise InvalidInput(f"{act!r} is not an act of a team")
    carry_out, done = quiet[act]
    carry_out()
    return done


def _page(
    asked: PlaceRequest, *, error: AppError | None = None, name: str | None = None, link: str = "", token: str = ""
) -> Response:
    session, competition, viewer, team = asked.session, asked.competition, asked.viewer, asked.place.team
    leads = team is not None and team.leader_id == viewer.id
    return asked.page(
        "team.html",
        tab="team",
        leads=leads,
        members=teams.members(session, team) if team else [],
        invitations=joining.open_invitations(session, team, actor=viewer) if team and leads else [],
        invited=joining.invitations_to(session, competition, viewer),
        merges=joining.requests(session, team) if team else [],
        may_grow=joining.may_grow(competition, at=now()),
        may_leave=team is not None and joining.may_leave(session, team),
        error=error,
        name=name if name is not None else team.name if team else viewer.name,
        link=link,
        token=token,
    )
