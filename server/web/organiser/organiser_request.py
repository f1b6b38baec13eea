"""What the organisers' pages of one competition are given, and how they answer."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from sqlalchemy.orm import Session

from server.deps import SessionDep
from server.models.account import Account
from server.models.competition import Competition
from server.web.cookies import Flash
from server.web.deps import MemberDep, OrganiserPlaceDep, Place
from server.web.rendering import page, redirect


@dataclass(frozen=True)
class OrganiserRequest:
    """A request of somebody who runs the competition in the address."""

    request: Request
    session: Session
    place: Place
    viewer: Account

    @property
    def competition(self) -> Competition:
        return self.place.competition

    def page(self, template: str, *, tab: str, **context: Any) -> Response:
        """Answer with a page of the competition."""
        return page(self.request, f"organise/{template}", place=self.place, tab=tab, **context)

    def done(self, text: str, *, to: str = "") -> Response:
        """Send the browser to the competition's first page, or another one of it, which says what was done."""
        return redirect(self.request, f"/organise/{self.competition.slug}{to}", flash=Flash("good", text))


async def organiser_request(
    request: Request, session: SessionDep, place: OrganiserPlaceDep, viewer: MemberDep
) -> OrganiserRequest:
    """Return the request. Raises NotAllowed for one who does not run the competition."""
    return OrganiserRequest(request, session, place, viewer)


OrganiserDep = Annotated[OrganiserRequest, Depends(organiser_request)]
