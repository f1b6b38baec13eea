"""The account page: password, second factor, API tokens, browsers that are logged in, and its end."""

from datetime import timedelta
from typing import Annotated, Any

from fastapi import Form, Request, Response
from sqlalchemy.orm import Session

from lethe.errors import AppError, InvalidInput, Violation
from server.accounts import accounts, second_factor, sessions, tokens
from server.accounts.passwords import digest
from server.admin import account_deletion as deletion
from server.deps import SessionDep, SettingsDep
from server.models.account import Account, Scope
from server.notifications import outbox
from server.web.auth_pages import start_session
from server.web.cookies import SESSION_COOKIE, Flash
from server.web.deps import MemberDep
from server.web.page_router import page_router
from server.web.rendering import page, redirect

router = page_router()

Text = Annotated[str, Form(max_length=300)]
LIFETIMES = {"30": timedelta(days=30), "90": timedelta(days=90), "365": timedelta(days=365)}
DEFAULT_SCOPE = Scope.SUBMIT


@router.get("/account")
def account_page(request: Request, session: SessionDep, viewer: MemberDep) -> Response:
    return _page(request, session, viewer)


@router.post("/account/password")
def change_password(
    request: Request,
    session: SessionDep,
    settings: SettingsDep,
    viewer: MemberDep,
    *,
    old: Text = "",
    new: Text = "",
    code: Text = "",
) -> Response:
    """Change the password: every other browser is logged out."""
    try:
        accounts.change_password(session, viewer, old=old, new=new, code=code)
    except AppError as error:
        wrong = _wrong(error, {"password": "new", "code": "password-code"})
        return _page(request, session, viewer, wrong=wrong, error=error)
    done = Flash("good", "The password is changed; every other browser is logged out.")
    return start_session(request, session, viewer, settings=settings, to="/account", flash=done)


@router.post("/account/mail")
def change_mail(
    request: Request,
    session: SessionDep,
    viewer: MemberDep,
    *,
    email: Text = "",
    wants_mail: Annotated[bool, Form()] = False,
    password: Text = "",
    code: Text = "",
) -> Response:
    """Set where mail goes, and whether it is wanted."""
    try:
        accounts.change_mail(session, viewer, email=email.strip(), wants_mail=wants_mail, password=password, code=code)
    except AppError as error:
        wrong = _wrong(error, {"password": "mail-password", "code": "mail-code"})
        return _page(request, session, viewer, wrong=wrong, error=error, email=email)
    to_confirm = viewer.email is not None and viewer.email_confirmed_at is None and outbox.sends_mail()
    done = "Saved. Follow the link in the mail that we sent you." if to_confirm else "Saved."
    return redirect(request, "/account", flash=Flash("good", done))


@router.post("/account/mail/confirmation")
def send_confirmation(request: Request, session: SessionDep, viewer: MemberDep) -> Response:
    """Send the link that confirms the address again."""
    accounts.send_confirmation(session, viewer)
    return redirect(request, "/account", flash=Flash("good", "Sent. Follow the link in the mail."))


@router.post("/account/tokens")
def make_token(
    request: Request,
    session: SessionDep,
    viewer: MemberDep,
    *,
    label: Text = "",
    scope: Annotated[Scope, Form()] = DEFAULT_SCOPE,
    days: Text = "90",
    code: Text = "",
) -> Response:
    """Create token and show it, this once."""
    try:
        if not label.strip() or len(label) > 100 or days not in LIFETIMES:
            allowed = Violation("label", "needs 1 to 100 characters")
            raise InvalidInput("The label needs 1 to 100 characters", violations=(allowed,))
        second_factor.require(session, viewer, code)
    except AppError as error:
        wrong = _wrong(error, {"code": "token-code"})
        return _page(request, session, viewer, wrong=wrong, error=error)
    issued = tokens.issue(session, viewer, label=label.strip(), scope=scope, expires_in=LIFETIMES[days])
    response = _page(request, session, viewer, issued=issued.token)
    response.headers["Cache-Control"] = "no-store"
    return response


@router.post("/account/tokens/{token_id}/revoke")
def revoke_token(token_id: str, request: Request, session: SessionDep, viewer: MemberDep) -> Response:
    tokens.revoke(session, viewer, token_id)
    return redirect(request, "/account", flash=Flash("good", "The token is revoked."))


@router.post("/account/sessions/{session_id}/revoke")
def revoke_session(session_id: str, request: Request, session: SessionDep, viewer: MemberDep) -> Response:
    sessions.revoke_by_id(session, viewer, session_id)
    return redirect(request, "/account", flash=Flash("good", "That browser is logged out."))


@router.post("/account/sessions/revoke")
def revoke_all_sessions(request: Request, session: SessionDep, viewer: MemberDep) -> Response:
    sessions.revoke_all(session, viewer)
    return redirect(request, "/login", flash=Flash("good", "You are logged out everywhere."))


@router.post("/account/delete")
def delete_account(
    request: Request, session: SessionDep, viewer: MemberDep, *, password: Text = "", code: Text = ""
) -> Response:
    """Delete the account, for good."""
    try:
        deletion.delete(session, viewer, password=password, code=code)
    except AppError as error:
        wrong = _wrong(error, {"password": "delete-password", "code": "delete-code"})
        return _page(request, session, viewer, wrong=wrong, error=error, stays_because=error.detail)
    response = redirect(request, "/", flash=Flash("good", "Your account is deleted."))
    response.delete_cookie(SESSION_COOKIE, path="/")
    return response


def _wrong(error: AppError, fields: dict[str, str]) -> dict[str, str]:
    """Return what is wrong by the page's name of each field: several forms have one of the same name."""
    return {fields.get(violation.field, violation.field): violation.message for violation in error.violations}


def _page(
    request: Request,
    session: Session,
    viewer: Account,
    *,
    wrong: dict[str, str] | None = None,
    error: AppError | None = None,
    issued: str = "",
    stays_because: str = "",
    email: str | None = None,
) -> Response:
    context: dict[str, Any] = {
        "account": viewer,
        "tokens": [(row, tokens.get_end(row)) for row in tokens.list_account_tokens(session, viewer)],
        "scopes": list(Scope),
        "usual_scope": DEFAULT_SCOPE,
        "has_second_factor": second_factor.is_on(viewer),
        "sessions": sessions.list_active(session, viewer),
        "this_session": digest(request.cookies.get(SESSION_COOKIE, "")),
        "wrong": wrong or {},
        "error": error,
        "issued": issued,
        "stays_because": stays_because,
        "email": viewer.email if email is None else email,
        "sends_mail": outbox.sends_mail(),
    }
    return page(request, "account.html", **context)


PATH = "/account/second-factor"


@router.get(PATH)
def second_factor_page(request: Request, session: SessionDep, viewer: MemberDep) -> Response:
    return _second_factor_page(request, session, viewer)


@router.post(f"{PATH}/begin")
def begin(request: Request, session: SessionDep, viewer: MemberDep, *, password: Text = "") -> Response:
    """Make a secret for an authenticator, and show it until its first code was given."""
    try:
        second_factor.confirm(session, viewer, password, code="")
        second_factor.begin(viewer)
    except AppError as error:
        return _second_factor_page(request, session, viewer, error=error)
    return redirect(request, PATH)


@router.post(f"{PATH}/on")
def switch_on(request: Request, session: SessionDep, viewer: MemberDep, *, code: Text = "") -> Response:
    """Switch it on by its first code, and show the recovery codes, this once."""
    try:
        kept = request.cookies.get(SESSION_COOKIE, "")
        codes = second_factor.switch_on(session, viewer, code, kept_session=kept)
    except AppError as error:
        return _second_factor_page(request, session, viewer, error=error)
    return _second_factor_page(request, session, viewer, codes=codes)


@router.post(f"{PATH}/off")
def switch_off(
    request: Request, session: SessionDep, viewer: MemberDep, *, password: Text = "", code: Text = ""
) -> Response:
    try:
        second_factor.confirm(session, viewer, password, code=code)
        second_factor.switch_off(session, viewer, actor=viewer)
    except AppError as error:
        return _second_factor_page(request, session, viewer, error=error)
    return redirect(request, "/account", flash=Flash("good", "The second factor is off."))


def _second_factor_page(
    request: Request,
    session: Session,
    viewer: Account,
    *,
    error: AppError | None = None,
    codes: list[str] | None = None,
) -> Response:
    is_on = second_factor.is_on(viewer)
    context: dict[str, Any] = {
        "is_on": is_on,
        "setup": second_factor.show(viewer) if viewer.totp_salt and not is_on else None,
        "codes": codes,
        "codes_left": second_factor.count_recovery_codes(session, viewer) if is_on else 0,
        "error": error,
        "wrong": {violation.field: violation.message for violation in error.violations} if error else {},
    }
    response = page(request, "second_factor.html", **context)
    response.headers["Cache-Control"] = "no-store"
    return response
