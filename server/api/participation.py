"""/api/v1/competitions/{slug}: who takes part, for those who want to, and for those who decide."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query, status
from pydantic import Field

from lethe.errors import InvalidInput, Violation
from server.api.auth_dependencies import CurrentAccount, VisibleCompetition, organiser_routes
from server.api.auth_dependencies import OrganisedCompetition as Organised
from server.api.schema import In, Out
from server.competitions import participants, participation, questions
from server.competitions.participants import ListedParticipant
from server.competitions.participation import Standing
from server.competitions.stored_file import stored_file
from server.deps import SessionDep
from server.models.participation import AdmissionLink, ParticipantState
from server.problem_details import problems


class CompetitionTerms(Out):
    """The terms in force."""

    version: int = Field(description="0: there are none", examples=[2])
    text: str = Field(description="Markdown")


class TermsVersion(In):
    """The version of the terms that was read."""

    version: int = Field(ge=1, lt=2**31, examples=[2])


class AdmissionRequest(In):
    """What the organisers read of who asks to take part."""

    message: str = Field(default="", max_length=1000, examples=["We are a group at the University of Ulm"])


class LinkToken(In):
    """The token of a link."""

    token: str = Field(max_length=200)


class ParticipantsOut(Out):
    """A page of participants."""

    participants: Sequence[ListedParticipant]
    has_more: bool
    asked: int = Field(description="how many wait for a decision")


class ParticipantDecision(In):
    """A decision about a person and its reason; both are sent to them."""

    decision: Literal["admit", "refuse"]
    reason: str = Field(default="", max_length=1000, description="needed to refuse")


class NewLink(In):
    """A new link."""

    days: int = Field(default=7, ge=1, le=365, description="until it expires")
    uses: int = Field(default=1, ge=1, le=10_000, description="how many people it admits")
    label: str = Field(default="", max_length=100, description="for the organisers", examples=["lab of Grace"])


class LinkOut(Out):
    """A link that admits people."""

    id: str
    label: str
    created_at: datetime
    expires_at: datetime
    uses: int
    most_uses: int
    token: str | None = Field(default=None, description="shown this once")

    @classmethod
    def of(cls, row: AdmissionLink, *, token: str | None = None) -> "LinkOut":
        return cls.read(row, token=token)


class Addresses(In):
    """E-mail addresses to add and to remove."""

    add: list[str] = Field(default=[], max_length=5000, examples=[["grace@example.org"]])
    remove: list[str] = Field(default=[], max_length=5000)


NO_CONTENT = status.HTTP_204_NO_CONTENT

router = APIRouter(prefix="/competitions/{slug}", tags=["teams"])
organisers = organiser_routes()


@router.get("/participation", responses=problems(401, 404))
def show_standing(session: SessionDep, competition: VisibleCompetition, account: CurrentAccount) -> Standing:
    """Show whether you may take part, and what is missing."""
    return participation.standing(session, competition, account)


@router.get("/terms", responses=problems(401, 404))
def show_terms(session: SessionDep, competition: VisibleCompetition) -> CompetitionTerms:
    """Show the terms in force, and their version."""
    version = participation.terms_version(session, competition)
    return CompetitionTerms(version=version, text=stored_file(competition).participation.terms)


@router.post("/participation/terms", responses=problems(401, 404))
def accept_terms(
    body: TermsVersion, session: SessionDep, competition: VisibleCompetition, account: CurrentAccount
) -> Standing:
    """Accept the terms in force. Another version than the one in force is refused."""
    questions.accept_terms(session, competition, version=body.version, account=account)
    return participation.standing(session, competition, account)


@router.post("/participation/request", status_code=status.HTTP_201_CREATED, responses=problems(401, 404, 409))
def ask(
    body: AdmissionRequest, session: SessionDep, competition: VisibleCompetition, account: CurrentAccount
) -> Standing:
    """Ask the organisers to take part; they accept or refuse."""
    participants.ask(session, competition, message=body.message, account=account)
    return participation.standing(session, competition, account)


@router.post("/participation/join", responses=problems(401, 403, 404))
def join_by_link(body: LinkToken, slug: str, session: SessionDep, account: CurrentAccount) -> Standing:
    """Take part by a link of the organisers, also in a competition that you do not see yet."""
    competition = participants.use(session, slug, body.token, account=account)
    return participation.standing(session, competition, account)


@organisers.get("/participants")
def list_participants(
    session: SessionDep,
    competition: Organised,
    *,
    state: ParticipantState | None = None,
    page: Annotated[int, Query(ge=1, le=100_000, description="a hundred a page")] = 1,
) -> ParticipantsOut:
    """List those about whom something was asked or decided, the latest first."""
    rows, has_more = participants.list_participants(session, competition, state=state or "", page=page)
    asked = participants.count_asked(session, competition)
    return ParticipantsOut(participants=rows, has_more=has_more, asked=asked)


@organisers.post("/participants/{name}/decision", status_code=NO_CONTENT, responses=problems(409))
def decide(
    name: str, body: ParticipantDecision, session: SessionDep, *, competition: Organised, account: CurrentAccount
) -> None:
    """Admit or refuse a person, whether they asked or not. Who is refused later is removed. They are written to."""
    if body.decision == "refuse" and not body.reason.strip():
        missing = Violation("reason", "is needed to refuse")
        raise InvalidInput("A reason is needed to refuse: the person reads it", violations=(missing,))
    admit = body.decision == "admit"
    participants.decide(session, competition, name, admit=admit, reason=body.reason, actor=account)


@organisers.get("/links")
def list_links(session: SessionDep, competition: Organised) -> list[LinkOut]:
    """List the links that still admit somebody."""
    return [LinkOut.of(row) for row in participants.open_links(session, competition)]


@organisers.post("/links", status_code=status.HTTP_201_CREATED, responses=problems(409))
def make_link(body: NewLink, session: SessionDep, competition: Organised, account: CurrentAccount) -> LinkOut:
    """Make a link that admits people. Its token is shown this once."""
    issued = participants.make(session, competition, days=body.days, uses=body.uses, label=body.label, actor=account)
    return LinkOut.of(issued.row, token=issued.token)


@organisers.delete("/links/{link_id}", status_code=NO_CONTENT)
def revoke_link(link_id: str, session: SessionDep, competition: Organised, account: CurrentAccount) -> None:
    """End a link. Who came by it stays."""
    participants.revoke(session, competition, link_id, actor=account)


@organisers.get("/addresses")
def list_addresses(session: SessionDep, competition: Organised) -> list[str]:
    """List the e-mail addresses whose confirmed owners are admitted."""
    return participants.addresses(session, competition)


@organisers.patch("/addresses", responses=problems(409))
def change_addresses(
    body: Addresses, session: SessionDep, competition: Organised, account: CurrentAccount
) -> list[str]:
    """Add and remove addresses; each new one is written to."""
    return participants.change_addresses(session, competition, add=body.add, remove=body.remove, actor=account)
