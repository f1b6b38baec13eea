"""What pages of one competition are given, and how they answer."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from fastapi import Depends, Request, Response
from sqlalchemy.orm import Session

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
