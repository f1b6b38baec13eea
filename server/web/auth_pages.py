"""Log in, register, log out."""

from datetime import timedelta
from typing import Annotated, Any

from fastapi import Form, Request, Response
from sqlalchemy.orm import Session

from lethe.errors import AppError
from server.accounts import accounts, rate_limit, second_factor, sessions
from server.config import Settings
from server.deps import DatabaseDep, SessionDep, SettingsDep
from server.errors import NotAllowed, RateLimited
from server.middleware import get_client_address
from server.models.account import Account
from server.notifications import outbox
from server.web.cookies import SESSION_COOKIE, Flash, set_cookie
from server.web.deps import ViewerDep
from server.web.page_router import page_router
from server.web.rendering import local_path, page, redirect

router = page_router()

Text = Annotated[str, Form(max_length=300)]


@router.get("/login")
def login_page(request: Request, viewer: ViewerDep, next: str = "/", why: str = "") -> Response:
    if viewer:
        return redirect(request, local_path(next))
    return page(request, "login.html", next=local_path(next), name="", error=None, why=why, needs_code=False)


@router.post("/login")
def log_in(
    request: Request,
    database: DatabaseDep,
    settings: SettingsDep,
    *,
    name: Text = "",
    password: Text = "",
    code: Text = "",
    next: Text = "/",
) -> Response:
    """Check name and password, and the second factor's code where one is on, and start a session of this browser."""
    try:
        with database.read() as session:  # comparing a password takes a while: hold nothing that others wait for
            account = accounts.authenticate(
                session, name=name.strip(), password=password, client=get_client_address(request)
            )
        with database.write() as session:
            second_factor.require(session, account, code)
    except AppError as error:
        status = 429 if isinstance(error, RateLimited) else 422
        needs_code = any(violation.field == "code" for violation in error.violations)
        shown = {"next": local_path(next), "name": name, "error": error, "needs_code": needs_code}
        return page(request, "login.html", status=status, why="", **shown)
    with database.write() as session:
        return start_session(request, session, account, settings=settings, to=local_path(next))


@router.get("/register")
def register_page(request: Request, settings: SettingsDep, viewer: ViewerDep, next: str = "/") -> Response:
    if viewer:
        return redirect(request, local_path(next))
    blank: dict[str, Any] = {"name": "", "email": "", "error": None, "wrong": {}}
    return _register_page(request, next, is_open=settings.open_registration, **blank)


@router.post("/register")
def register(
    request: Request,
    session: SessionDep,
    settings: SettingsDep,
    *,
    name: Text = "",
    email: Text = "",
    password: Text = "",
    next: Text = "/",
) -> Response:
    """Make an account, and log it in."""
    if not settings.open_registration:
        raise NotAllowed("Registration is closed on this server; ask an organiser for an account")
    try:
        rate_limit.take_registration(settings.registrations_per_hour, get_client_address(request))
        account = accounts.register(session, name=name.strip(), password=password, email=email.strip() or None)
    except AppError as error:
        wrong = {violation.field: violation.message for violation in error.violations}
        given = {"name": name, "email": email, "error": None if wrong else error, "wrong": wrong}
        status = 429 if isinstance(error, RateLimited) else 422
        return _register_page(request, next, status=status, is_open=True, **given)
    session.flush()
    welcome = Flash("good", f"Welcome, {account.name}.")
    return start_session(request, session, account, settings=settings, to=local_path(next), flash=welcome)


def _register_page(request: Request, to: str, **shown: Any) -> Response:
    return page(request, "register.html", next=local_path(to), sends_mail=outbox.sends_mail(), **shown)


@router.post("/logout")
def log_out(request: Request, session: SessionDep) -> Response:
    """End this browser's session."""
    sessions.revoke(session, request.cookies.get(SESSION_COOKIE, ""))
    response = redirect(request, "/", flash=Flash("good", "You are logged out."))
    response.delete_cookie(SESSION_COOKIE, path="/")
    return response


def start_session(
    request: Request, session: Session, account: Account, *, settings: Settings, to: str, flash: Flash | None = None
) -> Response:
    """Give this browser a session of `account`, and send it on."""
    lifetime = timedelta(days=settings.session_days)
    token = sessions.create(session, account, user_agent=request.headers.get("user-agent", ""), lifetime=lifetime)
    response = redirect(request, to, flash=flash)
    set_cookie(request, response, SESSION_COOKIE, token, max_age_s=int(lifetime.total_seconds()))
    return response
