"""What page routes are given: who looks, the competition in the address, and the right to be there."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.orm import Session

from lethe.competition.file import CompetitionFile
from server.accounts import sessions
from server.competitions import competitions, lifecycle, phases
from server.competitions.stored_file import stored_file
from server.db import now
from server.deps import SessionDep
from server.errors import NotAllowed, NotAuthenticated
from server.models.account import Account, Role
from server.models.competition import Competition, CompetitionState, Team
from server.teams import teams
from server.web.cookies import SESSION_COOKIE
from server.web.rendering import Reader


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
        if lifecycle.accepts_submission(competition, at, until=phases.deadline(competition, self.team)):
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
