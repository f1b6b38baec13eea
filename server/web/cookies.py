"""The pages' cookies (log-in, message for the next page, theme), and the tokens of forms against cross-site forgery."""

import base64
import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass
from typing import Literal

from fastapi import Request, Response

from server.config import get_settings
from server.errors import NotAllowed

SESSION_COOKIE = "lethe_session"
CSRF_COOKIE = "lethe_form"
FLASH_COOKIE = "lethe_notice"
THEME_COOKIE = "lethe_theme"  # set by the page's own script, so that the server renders the right one at once
FLASH_SECONDS = 60


@dataclass(frozen=True)
class Flash:
    """One message, shown once on the next page."""

    kind: Literal["good", "bad", "warn", "info"]
    text: str


def set_cookie(request: Request, response: Response, name: str, value: str, *, max_age_s: int) -> None:
    """Set a cookie that scripts cannot read and other sites cannot send along with a form."""
    secure = request.url.scheme == "https" or get_settings().environment == "production"
    response.set_cookie(name, value, max_age=max_age_s, httponly=True, samesite="lax", secure=secure, path="/")


def set_flash(request: Request, response: Response, flash: Flash) -> None:
    payload = base64.urlsafe_b64encode(json.dumps([flash.kind, flash.text]).encode()).decode()
    set_cookie(request, response, FLASH_COOKIE, f"{payload}.{_signature(payload)}", max_age_s=FLASH_SECONDS)


def read_flash(request: Request) -> Flash | None:
    """Return the flash message, or None if there is none or its signature is wrong."""
    payload, _, signature = request.cookies.get(FLASH_COOKIE, "").partition(".")
    if not payload or not hmac.compare_digest(signature.encode(), _signature(payload).encode()):
        return None
    kind, text = json.loads(base64.urlsafe_b64decode(payload))
    return Flash(kind, text)


def theme(request: Request) -> str:
    """Return the theme that the reader chose: light, dark, or auto (the device's)."""
    chosen = request.cookies.get(THEME_COOKIE, "")
    return chosen if chosen in ("light", "dark") else "auto"


def _signature(payload: str) -> str:
    return hmac.new(get_settings().signing_key(), f"flash|{payload}".encode(), hashlib.sha256).hexdigest()


FIELD = "csrf_token"
HEADER = "x-csrf-token"
SALT_LENGTH = 16
SECRET_FIELDS = ("password", "old", "new", "token")  # secrets are typed again


class StaleForm(NotAllowed):
    """A form whose token is of another log-in. Nothing of it was done."""

    slug, title = "stale-form", "The form has expired"

    def __init__(self) -> None:
        super().__init__("Nothing was sent: the form was opened before you last logged in or out.")


def csrf_seed(request: Request) -> str:
    """Return this browser's seed, making one that the answer will set as a cookie."""
    seed = request.cookies.get(CSRF_COOKIE) or getattr(request.state, "csrf_seed", None)
    if not seed:
        seed = secrets.token_urlsafe(24)
        request.state.csrf_seed = seed
    return str(seed)


def csrf_token(request: Request) -> str:
    """Return the token for every form on the page that answers `request`."""
    if not hasattr(request.state, "csrf_token"):
        salt = secrets.token_hex(SALT_LENGTH // 2)
        signature = _sign(salt, csrf_seed(request), request.cookies.get(SESSION_COOKIE, ""))
        request.state.csrf_token = salt + signature
    return str(request.state.csrf_token)


async def check_csrf(request: Request) -> None:
    """Dependency of every page route: a POST must come from a page of ours. Raises NotAllowed."""
    if request.method in ("GET", "HEAD"):
        return
    check_origin(request)
    given = request.headers.get(HEADER)
    if given is None:
        value = (await request.form()).get(FIELD)
        given = value if isinstance(value, str) else ""
    try:
        check_token(request, given)
    except StaleForm:
        await _keep_fields(request)
        raise


async def _keep_fields(request: Request) -> None:
    """Keep what a page of ours sent, so that its reader can send it again with a token of this log-in."""
    if request.headers.get("origin", "null") == "null" or request.headers.get(HEADER) is not None:
        return  # which page sent it is not certain
    fields = [(name, value) for name, value in (await request.form()).multi_items() if name != FIELD]
    if all(isinstance(value, str) and name not in SECRET_FIELDS for name, value in fields):
        request.state.unsent_fields = fields


def check_origin(request: Request) -> None:
    """Raise NotAllowed if the browser says that another site sent the request."""
    origin = request.headers.get("origin")
    foreign = origin is not None and origin != "null" and origin.partition("://")[2] != request.headers.get("host")
    if foreign or request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        raise NotAllowed("The form was sent from another site")


def check_token(request: Request, given: str) -> None:
    """Raise StaleForm unless `given` was made for this browser and log-in."""
    salt, signature = given[:SALT_LENGTH], given[SALT_LENGTH:]
    seed = request.cookies.get(CSRF_COOKIE, "")
    expected = _sign(salt, seed, request.cookies.get(SESSION_COOKIE, ""))
    if not seed or not hmac.compare_digest(signature.encode(), expected.encode()):
        raise StaleForm


def _sign(*parts: str) -> str:
    return hmac.new(get_settings().signing_key(), "|".join(parts).encode(), hashlib.sha256).hexdigest()
