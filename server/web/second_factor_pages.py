"""The page of an account's second factor: begin, switch on, switch off."""

from typing import Annotated, Any

from fastapi import Form, Request, Response
from sqlalchemy.orm import Session

from lethe.errors import AppError
from server.accounts import second_factor
from server.deps import SessionDep
from server.models.account import Account
from server.web.cookies import SESSION_COOKIE, Flash
from server.web.deps import MemberDep
from server.web.page_router import page_router
from server.web.rendering import page, redirect

router = page_router()

PATH = "/account/second-factor"
Text = Annotated[str, Form(max_length=300)]


@router.get(PATH)
def second_factor_page(request: Request, session: SessionDep, viewer: MemberDep) -> Response:
    return _page(request, session, viewer)


@router.post(f"{PATH}/begin")
def begin(request: Request, session: SessionDep, viewer: MemberDep, *, password: Text = "") -> Response:
    """Make a secret for an authenticator, and show it until its first code was given."""
    try:
        second_factor.confirm(session, viewer, password, code="")
        second_factor.begin(viewer)
    except AppError as error:
        return _page(request, session, viewer, error=error)
    return redirect(request, PATH)


@router.post(f"{PATH}/on")
def switch_on(request: Request, session: SessionDep, viewer: MemberDep, *, code: Text = "") -> Response:
    """Switch it on by its first code, and show the recovery codes, this once."""
    try:
        kept = request.cookies.get(SESSION_COOKIE, "")
        codes = second_factor.switch_on(session, viewer, code, kept_session=kept)
    except AppError as error:
        return _page(request, session, viewer, error=error)
    return _page(request, session, viewer, codes=codes)


@router.post(f"{PATH}/off")
def switch_off(
    request: Request, session: SessionDep, viewer: MemberDep, *, password: Text = "", code: Text = ""
) -> Response:
    try:
        second_factor.confirm(session, viewer, password, code=code)
        second_factor.switch_off(session, viewer, actor=viewer)
    except AppError as error:
        return _page(request, session, viewer, error=error)
    return redirect(request, "/account", flash=Flash("good", "The second factor is off."))


def _page(
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
