"""What goes in and out of the routes about who takes part."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from pydantic import Field

from server.api.schema import In, Out
from server.competitions.participants import ListedParticipant
from server.models.participation import AdmissionLink


class StandingOut(Out):
    """How the caller stands with a competition."""

    admission: str = Field(description="open, invited, approved", examples=["approved"])
    state: str = Field(
        description="admitted, asked, refused, or none: not admitted, nothing asked", examples=["admitted"]
    )
    reason: str = Field(description="of a refusal")
    may_take_part: bool = Field(description="whether nothing is missing")
    terms_version: int = Field(description="in force; 0: there are none", examples=[2])
    accepted_at: datetime | None = Field(description="when the caller accepted that version")
    lacks_address: bool = Field(description="a confirmed e-mail address is needed, and is not there")
    shares_address: bool = Field(description="somebody in a team has the same e-mail address")


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
