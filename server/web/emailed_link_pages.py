"""Pages that an e-mailed link opens: to confirm an address, to set a new password. No log-in is needed there."""

from typing import Annotated

from fastapi import BackgroundTasks, Form, Request, Response

from lethe.errors import AppError, InvalidInput, NotFound
from server.accounts import accounts, email_confirmation, password_reset, rate_limit
from server.admission import AdmissionDep
from server.deps import DatabaseDep, SessionDep, UnadmittedDatabase
from server.errors import status_of
from server.middleware import get_client_address
from server.notifications import outbox
from server.web.cookies import Flash
from server.web.deps import AdministratorDep
from server.web.page_router import page_router
from server.web.rendering import page, redirect

router = page_router()


@router.get("/confirm")
def confirm_page(request: Request, session: SessionDep, token: str = "") -> Response:
    """Ask whether the address is the account's: what looks at links before their readers changes nothing."""
    try:
        account = email_confirmation.find_account(session, token)
    except AppError as error:
        return _page(request, error=error)
    return _page(request, token=token, account=account.name, address=account.email or "")


@router.post("/confirm")
def confirm(request: Request, session: SessionDep, *, token: Annotated[str, Form(max_length=300)] = "") -> Response:
    """Confirm the address."""
    try:
        account = email_confirmation.confirm(session, token)
    except AppError as error:
        return _page(request, error=error)
    return _page(request, account=account.name, address=account.email or "", is_confirmed=True)


def _page(
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


Text = Annotated[str, Form(max_length=300)]


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
