"""The page that an e-mailed link opens, on which its reader confirms an address. No log-in is needed there."""

from typing import Annotated

from fastapi import Form, Request, Response

from lethe.errors import AppError
from server.accounts import email_confirmation
from server.deps import SessionDep
from server.web.page_router import page_router
from server.web.rendering import page

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
    response = page(request, "confirm.html", status=None, error=error, **shown)
    response.headers["Cache-Control"] = "no-store"
    response.headers["Referrer-Policy"] = "no-referrer"
    return response
