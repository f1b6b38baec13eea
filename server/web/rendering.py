"""Pages from templates, and their filters. Autoescape is on; every page gets the viewer, form token and theme."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Protocol

from fastapi import Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from jinja2 import Environment
from markupsafe import Markup, escape

from lethe.competition.run_limits import compare_with_limit
from lethe.errors import AppError, Violation
from lethe.submission.archive import size_limits
from server.config import get_settings
from server.datetime_format import duration, in_words, relative
from server.db import now
from server.errors import status_of
from server.models.account import Role
from server.parsing.client import markdown
from server.template_environment import TEMPLATES, new_environment
from server.web.assets import get_assets
from server.web.cookies import CSRF_COOKIE, FLASH_COOKIE, Flash, csrf_token, read_flash, set_cookie, set_flash, theme
from server.web.help_texts import glossary


class Explained(Protocol):
    """An error as pages show it."""

    @property
    def summary(self) -> str: ...

    @property
    def violations(self) -> Sequence[Violation]: ...


def untold(error: Explained) -> list[Violation]:
    """Return the wrong values that the error's summary does not tell already."""
    return [violation for violation in error.violations if violation.message not in error.summary]


def score(value: float | None) -> str:
    """Write a score with the digits that distinguish teams."""
    return "–" if value is None else f"{value:.5f}"


def metric(value: float | None) -> str:
    """Write a metric's value with four digits."""
    return "–" if value is None else f"{value:.4g}"


def short_name(title: str) -> str:
    """Return a metric's abbreviation where its title ends in one, else the title."""
    name, _, abbreviation = title.removesuffix(")").rpartition(" (")
    return abbreviation if name and " " not in abbreviation else title


def share(value: float | None) -> str:
    """Write a share as per cent."""
    return "–" if value is None else f"{100 * value:.0f} %" if value >= 0.1 else f"{100 * value:.1f} %"


def fraction(value: float) -> str:
    """Write a share that somebody has set as per cent, with all the digits that it was given."""
    return f"{100 * value:.6g} %"


def exact(timestamp: datetime) -> str:
    """Write a time in full, in UTC."""
    return f"{timestamp.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def ago(timestamp: datetime | None) -> Markup:
    """Return a <time> that reads relatively and shows the exact time on hover; a script keeps it right."""
    if timestamp is None:
        return Markup("–")
    return _time(timestamp, "relative", title=exact(timestamp), text=relative(timestamp))


def when(timestamp: datetime | None) -> Markup:
    """Return a <time> that reads exactly; a script turns it into the reader's own zone."""
    if timestamp is None:
        return Markup("–")
    return _time(timestamp, "exact", title=relative(timestamp), text=in_words(timestamp))


def countdown(timestamp: datetime) -> Markup:
    """Return a <time> that counts down to `timestamp`."""
    left_s = max(0.0, (timestamp - now()) / timedelta(seconds=1))
    return _time(timestamp, "countdown", title=exact(timestamp), text=duration(left_s))


def _time(timestamp: datetime, kind: str, *, title: str, text: str) -> Markup:
    """Return a <time> of parts that need no escaping: they are words of ours and digits, and a list has hundreds."""
    written = timestamp.isoformat(timespec="seconds")
    return Markup(f'<time datetime="{written}" title="{title}" data-time="{kind}">{text}</time>')  # noqa: S704


def size(n_bytes: int) -> str:
    if n_bytes < 1024:
        return f"{n_bytes} B"
    if n_bytes < 1 << 20:
        return f"{n_bytes / 1024:.1f} KiB"
    return f"{n_bytes / (1 << 20):.1f} MiB" if n_bytes < 1 << 30 else f"{n_bytes / (1 << 30):.1f} GiB"


def count(value: int, word: str) -> Markup:
    """Write a number and its noun."""
    return escape(f"{value:,} {word}{'' if value == 1 else 's'}")


def drawn(by: str) -> str:
    """Return how a forget set is drawn, as words after `drawn`."""
    return {"random": "at random", "ids": "from a given list"}.get(by, f"by {by}")


NAMES = {  # in this order: most also name the browsers that come later
    "Edg": "Edge",
    "OPR/": "Opera",
    "Firefox/": "Firefox",
    "FxiOS/": "Firefox",
    "Chrome/": "Chrome",
    "CriOS/": "Chrome",
    "Safari/": "Safari",
}
SYSTEMS = {
    "Windows": "Windows",
    "Android": "Android",
    "iPhone": "an iPhone",
    "iPad": "an iPad",
    "Macintosh": "a Mac",
    "CrOS": "ChromeOS",
    "Linux": "Linux",
}


def browser_name(user_agent: str) -> str:
    """Return for instance `Firefox on Windows`; what is not recognised is shown as it was sent."""
    browser = _first(NAMES, user_agent)
    system = _first(SYSTEMS, user_agent)
    if not browser:
        return user_agent or "unknown browser"
    return f"{browser} on {system}" if system else browser


def _first(signs: dict[str, str], user_agent: str) -> str:
    return next((name for sign, name in signs.items() if sign in user_agent), "")


CSRF_DAYS = 30
DAY_S = 86400


@dataclass(frozen=True)
class Reader:
    """The viewer of a page. A copy, so that it outlives the database session."""

    id: str
    name: str
    role: str


@lru_cache
def environment() -> Environment:
    """Return the templates' environment, made once."""
    made = new_environment(TEMPLATES)
    assets = get_assets()
    filters = (score, metric, share, short_name, fraction, drawn, ago, when, countdown, size, untold, duration)
    made.filters.update({each.__name__: each for each in (*filters, size_limits, markdown)}, browser=browser_name)
    made.globals.update(
        run_time=compare_with_limit,
        asset=assets.url,
        pairs=pairs,
        integrity=assets.integrity,
        icon=icon,
        count=count,
        glossary=glossary,
        Role=Role,
        now=now,
    )
    return made


def pairs(values: Iterable[str]) -> list[tuple[str, str]]:
    """Return the options of a select whose values are their own names."""
    return [(value, value) for value in values]


def icon(name: str, label: str = "") -> Markup:
    """Return an icon of the sprite; with a label where it stands for words, hidden from screen readers otherwise."""
    return _icon(get_assets().url("vendor/lucide/icons.svg"), name, label)


@lru_cache(maxsize=512)  # a list has one on every line
def _icon(url: str, name: str, label: str) -> Markup:
    if label:
        return Markup('<svg class="icon" role="img" aria-label="{}"><use href="{}#{}"></use></svg>').format(
            label, url, name
        )
    return Markup('<svg class="icon" aria-hidden="true"><use href="{}#{}"></use></svg>').format(url, name)


def render(request: Request, template: str, **context: Any) -> str:
    """Return the HTML of a page or of a part of one."""
    viewer: Reader | None = getattr(request.state, "viewer", None)
    common: dict[str, Any] = {
        "request": request,
        "viewer": viewer,
        "is_staff": viewer is not None and viewer.role in (Role.ORGANISER, Role.ADMINISTRATOR),
        "csrf": lambda: csrf_token(request),
        "theme": theme(request),
        "flash": read_flash(request),
        "public_url": get_settings().public_url.rstrip("/"),
    }
    return environment().get_template(template).render(common | context)


def page(request: Request, template: str, *, status: int | None = None, **context: Any) -> HTMLResponse:
    """Answer with a page, private to its reader. status: else that of `error` in the context, or 200."""
    error = context.get("error")
    if status is None:
        status = status_of(error) if isinstance(error, AppError) else 200
    response = HTMLResponse(render(request, template, **context), status_code=status)
    response.headers["Cache-Control"] = "private, no-cache"
    response.headers.add_vary_header("Cookie")
    keep_seed(request, response)
    if isinstance(error, AppError) and error.retry_after_s is not None:
        response.headers["Retry-After"] = str(error.retry_after_s)
    if FLASH_COOKIE in request.cookies:
        response.delete_cookie(FLASH_COOKIE, path="/")
    return response


def part(request: Request, template: str, *, is_last: bool = False, **context: Any) -> HTMLResponse:
    """Answer with a part of a page, for htmx; with the last one the page is to load itself again."""
    response = HTMLResponse(render(request, template, **context))
    response.headers["Cache-Control"] = "no-store"
    if is_last:
        response.headers["HX-Refresh"] = "true"
    return response


def figure(spec: dict[str, Any]) -> JSONResponse:
    """Answer with a figure's specification."""
    return JSONResponse(spec, headers={"Cache-Control": "private, no-cache"})


def redirect(request: Request, to: str, *, flash: Flash | None = None) -> Response:
    """Send the browser on after an act, with a message for the next page."""
    response = RedirectResponse(to, status_code=303)
    if flash:
        set_flash(request, response, flash)
    return response


def keep_seed(request: Request, response: Response) -> None:
    """Set the cookie of the form tokens if the page has a form and this browser has no seed yet."""
    seed = getattr(request.state, "csrf_seed", None)
    if seed:
        set_cookie(request, response, CSRF_COOKIE, seed, max_age_s=CSRF_DAYS * DAY_S)


def local_path(target: str | None, *, default: str = "/") -> str:
    """Return `target` if it is a path on this server, so that a link cannot send people elsewhere after log-in."""
    if not target or not target.startswith("/") or target[1:2] in ("/", "\\") or any(ord(c) < 32 for c in target):
        return default
    return target
