"""Routes of pages: an expected error becomes its own page, and a missing log-in a way to the log-in page."""

from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

from fastapi import APIRouter, Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from lethe.errors import AppError
from server.errors import NotAuthenticated, NotRevealed, status_of
from server.middleware import HEADERS, PROXY_CACHE
from server.problem_details import PageError, as_app_error
from server.web.cookies import SESSION_COOKIE, StaleForm, check_csrf
from server.web.rendering import local_path, page

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class PageRoute(APIRoute):
    """A route whose AppErrors are shown to a person."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def handle_for_people(request: Request) -> Response:
            return await _shown_to_people(handle, request)

        return handle_for_people


class PublicPageRoute(PageRoute):
    """A page that is the same for everybody who is not logged in: the proxy may cache it."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def handle_for_people(request: Request) -> Response:
            response = await handle(request)
            if response.status_code == 200 and "set-cookie" not in response.headers:
                response.headers.update(PROXY_CACHE)
            return response

        return handle_for_people


async def _shown_to_people(handle: Handler, request: Request) -> Response:
    try:
        return await handle(request)
    except NotAuthenticated:
        return to_login(request)
    except (AppError, RequestValidationError, OperationalError, PoolTimeout) as error:
        return error_page(request, as_app_error(error))


def page_router(*, checks_csrf: bool = True, is_public: bool = False) -> APIRouter:
    """Return a router for pages, forms checked. is_public: the same for all who are not logged in, kept briefly."""
    dependencies = [Depends(check_csrf)] if checks_csrf else []
    route_class = PublicPageRoute if is_public else PageRoute
    return APIRouter(route_class=route_class, include_in_schema=False, dependencies=dependencies)


def error_page(request: Request, error: AppError | PageError) -> Response:
    """Return the page that says what was wrong, and what can be done."""
    status = error.status if isinstance(error, PageError) else status_of(error)
    request_id = getattr(request.state, "request_id", "") if status >= 500 else ""
    unsent = getattr(request.state, "unsent_fields", None) if isinstance(error, StaleForm) else None
    slug = request.path_params.get("slug", "") if isinstance(error, NotRevealed) else ""
    shown = {"error": error, "back": _came_from(request), "request_id": request_id, "unsent": unsent, "board": slug}
    response = page(request, "error.html", status=status, http_status=status, **shown)
    response.headers.update(HEADERS)  # what failed unexpectedly is answered outside of what adds them
    return response


def _came_from(request: Request) -> str:
    """Return the referring page of this server; empty if there is none, or it is this one."""
    came_from = _referer(request)
    is_ours = came_from.netloc == request.url.netloc and came_from.path != request.url.path
    return local_path(came_from._replace(scheme="", netloc="").geturl(), default="") if is_ours else ""


def to_login(request: Request) -> Response:
    """Send the reader to the log-in page, which says why, and back afterwards: to the form where one was sent."""
    target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    back = target if request.method in ("GET", "HEAD") else _form_page(request)
    why = "ended" if request.cookies.get(SESSION_COOKIE) or request.method == "POST" else "needed"
    return RedirectResponse(f"/login?next={quote(back, safe='')}&why={why}", status_code=303)


def _form_page(request: Request) -> str:
    came_from = _referer(request)
    is_ours = came_from.netloc == request.url.netloc
    return local_path(came_from._replace(scheme="", netloc="").geturl(), default="/") if is_ours else "/"


def _referer(request: Request) -> SplitResult:
    try:
        return urlsplit(request.headers.get("referer", ""))
    except ValueError:  # no address, whoever wrote it
        return urlsplit("")
