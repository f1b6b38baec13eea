"""Who takes part, for organisers: the rules, requests and decisions, links, addresses."""

from typing import Annotated, Any

from fastapi import Form, Query, Request, Response

from lethe.competition.sections import Participation
from lethe.errors import AppError, InvalidInput
from server.accounts.accounts import clean_address
from server.competitions import admission_links, participants, questions
from server.competitions.participation import TERMS
from server.notifications import outbox
from server.web.page_router import page_router
from server.web.place_request import OrganiserDep, OrganiserRequest, change, needed

router = page_router()

BASE = "/organise/{slug}/participants"
ADMISSIONS = (
    ("open", "Open to everybody"),
    ("invited", "By invitation: a link or an address"),
    ("approved", "By approval: you accept each person"),
)
Short = Annotated[str, Form(max_length=1000)]
LongText = Annotated[str, Form(max_length=400_000)]
StateQuery = Annotated[str, Query(max_length=20)]
PageNumber = Annotated[int, Query(alias="page", ge=1, le=100_000)]


@router.get(BASE)
def participants_page(asked: OrganiserDep, *, state: StateQuery = "", page_number: PageNumber = 1) -> Response:
    return _page(asked, state=state, page_number=page_number)


@router.post(BASE)
def act(
    asked: OrganiserDep,
    request: Request,
    *,
    act: Short = "",
    name: Short = "",
    reason: Short = "",
    label: Annotated[str, Form(max_length=100)] = "",
    days: Annotated[int, Form(ge=1, le=365)] = 7,
    uses: Annotated[int, Form(ge=1, le=10_000)] = 1,
    addresses: LongText = "",
) -> Response:
    """Admit or refuse somebody; make or revoke a link; set the list of addresses."""
    try:
        with asked.session.begin_nested():
            if act == "link":
                issued = admission_links.make(
                    asked.session, asked.competition, days=days, uses=uses, label=label, actor=asked.viewer
                )
                link = f"{request.base_url}competitions/{asked.competition.slug}/join?token={issued.token}"
                response = _page(asked, link=link, link_uses=uses)
                response.headers["Cache-Control"] = "no-store"
                return response
            done = _act(asked, act=act, name=name.strip(), reason=reason, addresses=addresses)
    except AppError as error:
        return _page(asked, error=error)
    return asked.done(done, to="/participants")


def _act(asked: OrganiserRequest, *, act: str, name: str, reason: str, addresses: str) -> str:
    """Carry out one act. Return what was done, as text."""
    here = asked.session, asked.competition
    if act == "admit":
        participants.decide(*here, name, admit=True, reason=reason, actor=asked.viewer)
        return f"{name} is admitted."
    if act == "refuse":
        participants.decide(*here, name, admit=False, reason=needed(reason), actor=asked.viewer)
        return f"{name} is refused."
    if act == "revoke":
        admission_links.revoke(*here, name, actor=asked.viewer)
        return "The link is revoked."
    if act == "addresses":
        wanted, known = set(map(clean_address, addresses.split())), set(participants.addresses(*here))
        participants.change_addresses(*here, add=wanted - known, remove=known - wanted, actor=asked.viewer)
        return "The addresses are saved."
    raise InvalidInput(f"{act!r} is not an act; allowed are admit, refuse, link, revoke, addresses")


@router.post(f"{BASE}/rules")
def change_rules(
    asked: OrganiserDep,
    *,
    admission: Short = "open",
    private: bool = Form(default=False),
    confirmed_email: bool = Form(default=False),
    terms: LongText = "",
    reason: Short = "",
) -> Response:
    """Change who may take part. Other terms are a new version."""
    values: dict[str, Any] = {"admission": admission, "private": private, "confirmed_email": confirmed_email}
    values["terms"] = terms.replace("\r\n", "\n").strip()
    try:
        change(asked, {"participation": values}, reason=reason)
    except AppError as error:
        rules = Participation.model_construct(**values)
        return _page(asked, error=error, rules=rules, reason=reason)
    return asked.done("The rules are changed.", to="/participants")


def _page(asked: OrganiserRequest, *, state: str = "", page_number: int = 1, **context: Any) -> Response:
    found, has_more = participants.list_participants(asked.session, asked.competition, state=state, page=page_number)
    shown: dict[str, Any] = {"error": None, "link": "", "link_uses": 0, "rules": None, "reason": "", **context}
    shown["rules"] = shown["rules"] or asked.place.file.participation
    return asked.page(
        "participants.html",
        tab="participants",
        rows=found,
        has_more=has_more,
        page_number=page_number,
        state=state,
        links=admission_links.open_links(asked.session, asked.competition),
        addresses=participants.addresses(asked.session, asked.competition),
        versions=questions.versions(asked.session, asked.competition, TERMS),
        admissions=ADMISSIONS,
        sends_mail=outbox.sends_mail(),
        **shown,
    )
