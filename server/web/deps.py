"""Dependencies of page routes: the viewer, the competition in the address, permission; and how its pages answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar

from fastapi import Depends, Request, Response
from sqlalchemy.orm import Session

from lethe.competition.file import CompetitionFile
from lethe.competition.section import within_range
from lethe.errors import InvalidInput, Violation
from server.accounts import sessions
from server.admin import competition_edits
from server.admin.competition_edits import Change
from server.competitions import competitions, lifecycle
from server.competitions.stored_file import stored_file
from server.db import now
from server.deps import SessionDep
from server.errors import NotAllowed, NotAuthenticated
from server.models.account import Account, Role
from server.models.competition import Competition, CompetitionState, Team
from server.teams import teams
from server.web.cookies import SESSION_COOKIE, Flash
from server.web.rendering import Reader, page, redirect


def get_viewer(request: Request, session: SessionDep) -> Account | None:
    """Return who is logged in in this browser, or None."""
    token = request.cookies.get(SESSION_COOKIE)
    viewer = sessions.find(session, token) if token else None
    request.state.viewer = Reader(viewer.id, viewer.name, viewer.role) if viewer else None
    return viewer


ViewerDep = Annotated[Account | None, Depends(get_viewer)]


async def require_viewer(viewer: ViewerDep) -> Account:
    """Return who is logged in. Raises NotAuthenticated, which sends the reader to the log-in page and back."""
    if viewer is None:
        raise NotAuthenticated("Log in to see this page")
    return viewer


MemberDep = Annotated[Account, Depends(require_viewer)]


async def require_staff(viewer: MemberDep) -> Account:
    """Return an organiser or administrator. Raises NotAllowed."""
    check_is_staff(viewer)
    return viewer


def check_is_staff(viewer: Account) -> None:
    """Raise NotAllowed for who is neither organiser nor administrator."""
    if viewer.role not in (Role.ORGANISER, Role.ADMINISTRATOR):
        raise NotAllowed("Only organisers see this page")


StaffDep = Annotated[Account, Depends(require_staff)]


async def require_administrator(viewer: MemberDep) -> Account:
    """Return an administrator. Raises NotAllowed."""
    if viewer.role != Role.ADMINISTRATOR:
        raise NotAllowed("Only administrators see this page")
    return viewer


AdministratorDep = Annotated[Account, Depends(require_administrator)]


OVER = (CompetitionState.CLOSED, CompetitionState.PROVISIONAL, CompetitionState.FINAL, CompetitionState.ARCHIVED)


@dataclass(frozen=True)
class Place:
    """The competition that a page is about, and what its reader is there."""

    competition: Competition
    file: CompetitionFile
    is_organiser: bool
    team: Team | None
    whole: Competition | None = None  # of a task: the competition that it is one of
    tasks: tuple[Competition, ...] = ()  # of it, or of the competition itself

    @property
    def is_over(self) -> bool:
        """Whether nothing more can be submitted that counts, or chosen."""
        competition, at = self.competition, now()
        if lifecycle.accepts_submission(competition, at, until=lifecycle.deadline(competition, self.team)):
            return False
        return competition.state in OVER or competition.closes_at <= at


def get_place(slug: str, session: SessionDep, viewer: ViewerDep) -> Place:
    """Return the competition in the address. Raises NotFound."""
    return find_place(session, competitions.get(session, slug, account=viewer), viewer)


def find_place(session: Session, competition: Competition, viewer: Account | None) -> Place:
    whole = None if competition.parent_id is None else competitions.root(session, competition)
    return Place(
        whole=whole,
        tasks=tuple(competitions.tasks(session, whole or competition)),
        competition=competition,
        file=stored_file(competition),
        is_organiser=competitions.is_organiser(session, competition, viewer),
        team=teams.get_team(session, competition, viewer) if viewer else None,
    )


PlaceDep = Annotated[Place, Depends(get_place)]


async def require_organiser(place: PlaceDep, viewer: MemberDep) -> Place:
    """Return the competition for one who runs it. Raises NotAllowed."""
    if not place.is_organiser:
        raise NotAllowed(f"{viewer.name} does not organise {place.competition.slug}")
    return place


OrganiserPlaceDep = Annotated[Place, Depends(require_organiser)]


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
        """Redirect to the competition's first page, or another one of it, with a flash message."""
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
    """Return the stripped reason. Raises InvalidInput if it is empty."""
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
