"""The account page: password, API tokens, browsers that are logged in, and its end."""

from datetime import timedelta
from typing import Annotated, Any

from fastapi import Form, Request, Response
from sqlalchemy.orm import Session

from lethe.errors import AppError, InvalidInput, Violation
from server.accounts import deletion, sessions, tokens
from server.accounts import service as accounts
from server.accounts.secrets import digest
from server.deps import SessionDep, SettingsDep
from server.models.account import Account
from server.notifications import email_queue
from server.web.auth_pages import start_session
from server.web.cookies import SESSION_COOKIE, Flash
from server.web.deps import MemberDep
from server.web.page_router import page_router
from server.web.rendering import page, redirect

router = page_router()

Text = Annotated[str, Form(max_length=300)]
LIFETIMES = {"": None, "30": timedelta(days=30), "90": timedelta(days=90), "365": timedelta(days=365)}


@router.get("/account")
def account_page(request: Request, session: SessionDep, viewer: MemberDep) -> Response:
    return _page(request, session, viewer)


@router.post("/account/password")
def change_password(
    request: Request, session: SessionDep, settings: SettingsDep, viewer: MemberDep, *, old: Text = "", new: Text = ""
) -> Response:
    """Change the password: every other browser is logged out."""
    try:
        accounts.change_password(session, viewer, old=old, new=new)
    except AppError as error:
        wrong = {{"password": "new"}.get(v.field, v.field): v.message for v in error.violations}
        return _page(request, session, viewer, status=error.status, wrong=wrong, error=error)
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
) -> Response:
    """Set where mail goes, and whether it is wanted."""
    try:
        accounts.change_mail(session, viewer, email=email.strip(), wants_mail=wants_mail, password=password)
    except AppError as error:
        wrong = {"mail-password" if v.field == "password" else v.field: v.message for v in error.violations}
        return _page(request, session, viewer, status=error.status, wrong=wrong, error=error, email=email)
    return redirect(request, "/account", flash=Flash("good", "Saved."))


@router.post("/account/tokens")
def make_token(
    request: Request, session: SessionDep, viewer: MemberDep, *, label: Text = "", days: Text = ""
) -> Response:
    """Create token and show it, this once."""
    if not label.strip() or len(label) > 100 or days not in LIFETIMES:
        wrong = InvalidInput("The label needs 1 to 100 characters", violations=(Violation("label", "is missing"),))
        return _page(request, session, viewer, status=422, wrong={"label": "needs 1 to 100 characters"}, error=wrong)
    issued = tokens.issue(session, viewer, label=label.strip(), expires_in=LIFETIMES[days])
    session.flush()
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
def delete_account(request: Request, session: SessionDep, viewer: MemberDep, *, password: Text = "") -> Response:
    """Delete the account, for good."""
    try:
        deletion.delete(session, viewer, password=password)
    except AppError as error:
        wrong = {f"delete-{v.field}": v.message for v in error.violations}
        return _page(
            request, session, viewer, status=error.status, wrong=wrong, error=error, stays_because=error.detail
        )
    response = redirect(request, "/", flash=Flash("good", "Your account is deleted."))
    response.delete_cookie(SESSION_COOKIE, path="/")
    return response


def _page(
    request: Request,
    session: Session,
    viewer: Account,
    *,
    status: int = 200,
    wrong: dict[str, str] | None = None,
    error: AppError | None = None,
    issued: str = "",
    stays_because: str = "",
    email: str | None = None,
) -> Response:
    context: dict[str, Any] = {
        "account": viewer,
        "tokens": tokens.list_account_tokens(session, viewer),
        "sessions": sessions.list_active(session, viewer),
        "this_session": digest(request.cookies.get(SESSION_COOKIE, "")),
        "wrong": wrong or {},
        "error": error,
        "issued": issued,
        "stays_because": stays_because,
        "email": viewer.email if email is None else email,
        "sends_mail": email_queue.is_on(),
    }
    return page(request, "account.html", status=status, **context)
