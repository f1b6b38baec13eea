"""The pages' cookies: the log-in, the seed of form tokens, a message for the next page, the theme."""

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Literal

from fastapi import Request, Response

from server.config import get_settings

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
    """Return the message that the last act left, or None if there is none or it is not ours."""
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
