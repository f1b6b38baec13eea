"""Log in, register, log out; what an e-mailed link opens: to confirm an address, to set a new password."""

from datetime import timedelta
from typing import Annotated, Any

from fastapi import BackgroundTasks, Form, Request, Response
from sqlalchemy.orm import Session

from lethe.errors import AppError, InvalidInput, NotFound
from server.accounts import accounts, password_reset, rate_limit, second_factor, sessions
from server.admission import AdmissionDep
from server.config import Settings
from server.deps import DatabaseDep, SessionDep, SettingsDep, UnadmittedDatabase
from server.errors import NotAllowed, RateLimited, status_of
from server.middleware import get_client_address
from server.models.account import Account
from server.notifications import outbox
from server.web.cookies import SESSION_COOKIE, Flash, set_cookie
from server.web.deps import AdministratorDep, ViewerDep
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


@router.get("/confirm")
def confirm_page(request: Request, session: SessionDep, token: str = "") -> Response:
    """Ask whether the address is the account's: what looks at links before their readers changes nothing."""
    try:
        account = accounts.find_by_confirmation(session, token)
    except AppError as error:
        return _link_page(request, error=error)
    return _link_page(request, token=token, account=account.name, address=account.email or "")


@router.post("/confirm")
def confirm(request: Request, session: SessionDep, *, token: Text = "") -> Response:
    """Confirm the address."""
    try:
        account = accounts.confirm_address(session, token)
    except AppError as error:
        return _link_page(request, error=error)
    return _link_page(request, account=account.name, address=account.email or "", is_confirmed=True)


def _link_page(
    request: Request,
    *,
    error: AppError | None = None,
    token: str = "",
    account: str = "",
    address: str = "",
    is_confirmed: bool = False,
) -> Response:
    shown = {"token": token, "account": account, "address": address, "is_confirmed": is_confirmed}
    return _private(page(request, "confirm.html", status=None, error=error, **shown))


@router.get("/forgot")
def forgot_page(request: Request) -> Response:
    return page(request, "forgot.html", sends_mail=outbox.sends_mail(), is_asked=False, error=None)


@router.post("/forgot")
def ask_for_link(
    request: Request,
    background: BackgroundTasks,
    *,
    admission: AdmissionDep,
    database: UnadmittedDatabase,
    who: Text = "",
) -> Response:
    """Send a link if there is such an account. The answer is the same if not, and takes the same time."""
    try:
        rate_limit.reset_requests.take(get_client_address(request))
    except AppError as error:
        return page(request, "forgot.html", sends_mail=outbox.sends_mail(), is_asked=False, error=error)
    if outbox.sends_mail() and who.strip():
        background.add_task(admission.write, database, password_reset.send_link, who)
    return page(request, "forgot.html", sends_mail=outbox.sends_mail(), is_asked=True, error=None)


@router.get("/reset")
def reset_page(request: Request, session: SessionDep, token: str = "") -> Response:
    """Ask for the new password, if the link works: looking at it changes nothing."""
    try:
        account = password_reset.get_account(session, token)
    except NotFound as error:
        return _form(request, token, status=status_of(error), dead_because=error.detail)
    return _form(request, token, account=account.name)


@router.post("/reset")
def set_password(request: Request, database: DatabaseDep, *, token: Text = "", new: Text = "") -> Response:
    """Set the new password, and send the person to the log-in."""
    name = ""
    try:
        with database.read() as session:  # hashing takes a while: who has no link that works does not get that far
            name = password_reset.get_account(session, token).name
        with database.write() as session:
            password_reset.use(session, token, password=new)
    except InvalidInput as error:
        return _form(request, token, status=status_of(error), account=name, wrong=error.violations[0].message)
    except NotFound as error:
        return _form(request, token, status=status_of(error), dead_because=error.detail)
    done = Flash("good", "The new password is set, and everything that was logged in is logged out. Log in with it.")
    return redirect(request, "/login", flash=done)


@router.post("/people/{name}/reset-link")
def make_link(name: str, request: Request, session: SessionDep, viewer: AdministratorDep) -> Response:
    """Make a link for somebody and show it, this once, to be handed on."""
    account = accounts.find(session, name)
    issued = password_reset.issue(session, account, actor=viewer, lifetime=password_reset.BY_ADMINISTRATOR)
    return _private(page(request, "reset_link.html", issued=issued))


def _form(
    request: Request, token: str, *, status: int = 200, account: str = "", wrong: str = "", dead_because: str = ""
) -> Response:
    context = {"token": token, "account": account, "wrong": wrong, "dead_because": dead_because}
    return _private(page(request, "reset.html", status=status, **context))


def _private(response: Response) -> Response:
    """Keep the secret in the address or on the page from caches, and from the next page's Referer."""
    response.headers["Cache-Control"] = "no-store"
    response.headers["Referrer-Policy"] = "no-referrer"
    return response
