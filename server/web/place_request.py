"""What pages of one competition are given, how they answer, and what the organisers' forms have in common."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar

from fastapi import Depends, Request, Response
from sqlalchemy.orm import Session

from lethe.competition.section import within_range
from lethe.errors import InvalidInput, Violation
from server.admin import competition_edits
from server.admin.competition_edits import Change
from server.deps import SessionDep
from server.models.account import Account
from server.models.competition import Competition
from server.web.cookies import Flash
from server.web.deps import MemberDep, OrganiserPlaceDep, Place, PlaceDep
from server.web.rendering import page, redirect


@dataclass(frozen=True)
class PlaceRequest:
    """A request of somebody who is logged in, about the competition in the address."""

    request: Request
    session: Session
    place: Place
    viewer: Account
    pages: ClassVar[str] = "competitions"
    templates: ClassVar[str] = ""

    @property
    def competition(self) -> Competition:
        return self.place.competition

    def page(self, template: str, *, tab: str, **context: Any) -> Response:
        """Answer with a page of the competition."""
        return page(self.request, f"{self.templates}{template}", place=self.place, tab=tab, **context)

    def done(self, text: str, *, to: str = "") -> Response:
        """Send the browser to the competition's first page, or another one of it, which says what was done."""
        return redirect(self.request, f"/{self.pages}/{self.competition.slug}{to}", flash=Flash("good", text))


class OrganiserRequest(PlaceRequest):
    """A request of somebody who runs the competition."""

    pages = "organise"
    templates = "organise/"


async def member_request(request: Request, session: SessionDep, place: PlaceDep, viewer: MemberDep) -> PlaceRequest:
    """Return the request. Raises NotAuthenticated."""
    return PlaceRequest(request, session, place, viewer)


async def organiser_request(
    request: Request, session: SessionDep, place: OrganiserPlaceDep, viewer: MemberDep
) -> OrganiserRequest:
    """Return the request. Raises NotAllowed for one who does not run the competition."""
    return OrganiserRequest(request, session, place, viewer)


MemberRequestDep = Annotated[PlaceRequest, Depends(member_request)]
OrganiserDep = Annotated[OrganiserRequest, Depends(organiser_request)]


def change(asked: OrganiserRequest, values: Mapping[str, Any], *, act: str = "save", reason: str = "") -> Change:
    """Change the competition, or show with the act `preview` what that would do. Raises AppError."""
    return competition_edits.change(
        asked.session, asked.competition, values, actor=asked.viewer, reason=reason, preview=act == "preview"
    )


def needed(reason: str) -> str:
    """Return the reason. Raises InvalidInput if there is none."""
    if not reason.strip():
        missing = Violation("reason", "is missing")
        raise InvalidInput("A reason is needed: it is recorded in the audit log", violations=(missing,))
    return reason.strip()


def timestamp(text: str, *, field: str) -> datetime:
    """Return the timestamp that a form names, in UTC where it names no zone. Raises InvalidInput."""
    try:
        moment = datetime.fromisoformat(text.strip())
        moment = within_range(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except ValueError as error:
        wrong = Violation(field, "needs a date and a time, UTC", text[:40])
        raise InvalidInput(f"{text[:40]!r} is not a timestamp", violations=(wrong,)) from error
    return moment.astimezone(UTC)
