"""Who takes part, for organisers: the rules, requests and decisions, links, addresses; questions, and the pages beside
the description."""

from typing import Annotated, Any

from fastapi import Form, Query, Request, Response

from lethe.competition.sections import TITLES, Participation
from lethe.errors import AppError, InvalidInput, NotFound
from server.accounts.accounts import clean_address
from server.competitions import participants, questions
from server.competitions.participation import TERMS
from server.notifications import outbox
from server.web.deps import OrganiserDep, OrganiserRequest, change, needed
from server.web.page_router import page_router

router = page_router()

BASE = "/organise/{slug}/participants"
ADMISSIONS = (
    ("open", "Open to everybody"),
    ("invited", "By invitation: a link or an address"),
    ("approved", "By approval: you accept each person"),
)
Short = Annotated[str, Form(max_length=1000)]
LongText = Annotated[str, Form(max_length=400_000)]
Words = Annotated[str, Form(max_length=4000)]
PageName = Annotated[str, Query(max_length=20)]
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
                issued = participants.make(
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
        participants.revoke(*here, name, actor=asked.viewer)
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
    rows, has_more = participants.list_participants(asked.session, asked.competition, state=state, page=page_number)
    shown: dict[str, Any] = {"error": None, "link": "", "link_uses": 0, "rules": None, "reason": "", **context}
    shown["rules"] = shown["rules"] or asked.place.file.participation
    return asked.page(
        "participants.html",
        tab="participants",
        rows=rows,
        has_more=has_more,
        page_number=page_number,
        state=state,
        links=participants.open_links(asked.session, asked.competition),
        addresses=participants.addresses(asked.session, asked.competition),
        versions=questions.versions(asked.session, asked.competition, TERMS),
        admissions=ADMISSIONS,
        sends_mail=outbox.sends_mail(),
        **shown,
    )


@router.get("/organise/{slug}/questions")
def questions_page(
    asked: OrganiserDep, *, only_open: Annotated[bool, Query(alias="open")] = False, page_number: PageNumber = 1
) -> Response:
    return _questions(asked, only_open=only_open, page_number=page_number)


@router.post("/organise/{slug}/questions")
def answer(
    asked: OrganiserDep,
    *,
    question: Words = "",
    text: LongText = "",
    shown_text: Words = "",
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
    asked: OrganiserDep, *, name: Words = "", text: LongText = "", act: Words = "preview", reason: Words = ""
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
    rows, has_more = questions.page_of_all(asked.session, asked.competition, only_open=only_open, page=page_number)
    return asked.page(
        "questions.html",
        tab="questions",
        rows=rows,
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
