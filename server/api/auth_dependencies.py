"""Who is calling, and whether they may be there. The API takes a Bearer token only, so a browser's cookie alone
never acts here and no cross-site request can."""

from typing import Annotated

from fastapi import APIRouter, BackgroundTasks, Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy.orm import Session

from server.accounts import tokens
from server.admission import AdmissionDep
from server.competitions import competitions
from server.db import now
from server.deps import DatabaseDep, SessionDep
from server.errors import NotAllowed, NotAuthenticated
from server.models.account import Account, ApiToken, Role
from server.models.competition import Competition
from server.problem_details import problems

TOKEN_NEEDED = "This needs a token: Authorization: Bearer lethe_..."  # noqa: S105 (a sentence)
bearer = HTTPBearer(auto_error=False, description="A token from `POST /api/v1/tokens`")

Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]


def identify(
    session: Session, credentials: HTTPAuthorizationCredentials | None, *, request: Request
) -> ApiToken | None:
    """Return the valid token of a request, None without one. Raises NotAuthenticated, NotAllowed for its scope."""
    if credentials is None:
        return None
    row = tokens.find(session, credentials.credentials)
    if row is None:
        raise NotAuthenticated("The token is not valid: it is unknown, revoked or expired")
    tokens.require_scope(row, tokens.needed_scope(request.method, request.scope["route"].tags))
    return row


def optional_account(
    request: Request,
    session: SessionDep,
    credentials: Credentials,
    background: BackgroundTasks,
    *,
    database: DatabaseDep,
    admission: AdmissionDep,
) -> Account | None:
    """Return the caller, or None for a request without a token."""
    row = identify(session, credentials, request=request)
    if row is None:
        return None
    if tokens.use_is_due(row, now()):
        background.add_task(admission.write, database, tokens.note_use, row.id)
    return row.account


async def current_account(account: Annotated[Account | None, Depends(optional_account)]) -> Account:
    """Return the caller. Raises NotAuthenticated."""
    if account is None:
        raise NotAuthenticated(TOKEN_NEEDED)
    return account


def find_caller(session: Session, request: Request, credentials: HTTPAuthorizationCredentials | None) -> Account:
    """Return the caller, for a route that reads a long body and holds no session meanwhile. Raises NotAuthenticated."""
    row = identify(session, credentials, request=request)
    if row is None:
        raise NotAuthenticated(TOKEN_NEEDED)
    return row.account


async def administrator(account: Annotated[Account, Depends(current_account)]) -> Account:
    """Return the caller, who is an administrator. Raises NotAllowed."""
    if account.role != Role.ADMINISTRATOR:
        raise NotAllowed("Only administrators may do this")
    return account


async def require_staff(account: Annotated[Account, Depends(current_account)]) -> Account:
    """Return the caller, who is an organiser or administrator. Raises NotAllowed."""
    if account.role not in (Role.ORGANISER, Role.ADMINISTRATOR):
        raise NotAllowed("Only organisers may do this")
    return account


OptionalAccount = Annotated[Account | None, Depends(optional_account)]
CurrentAccount = Annotated[Account, Depends(current_account)]
Administrator = Annotated[Account, Depends(administrator)]


def visible_competition(slug: str, session: SessionDep, account: OptionalAccount) -> Competition:
    """Return the competition of the path. Raises NotFound, also for one that the caller may not know of."""
    return competitions.get(session, slug, account=account)


def require_organiser_for(slug: str, session: SessionDep, account: CurrentAccount) -> Competition:
    """Return the competition of the path, which the caller organises. Raises NotAllowed, or NotFound if hidden."""
    competition = competitions.get(session, slug, account=account)
    if not competitions.is_organiser(session, competition, account):
        raise NotAllowed(f"Only the organisers of {slug} may do this")
    return competition


VisibleCompetition = Annotated[Competition, Depends(visible_competition)]
OrganisedCompetition = Annotated[Competition, Depends(require_organiser_for)]


def organiser_routes(below: str = "") -> APIRouter:
    """Return a router of what only a competition's organisers may do. below: where it lies below the competition."""
    return APIRouter(
        prefix=f"/competitions/{{slug}}{below}",
        tags=["organisers"],
        dependencies=[Depends(require_organiser_for)],
        responses=problems(401, 403, 404),
    )
