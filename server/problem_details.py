"""Errors as problem documents (RFC 9457): what was wrong, which value, what is allowed."""

import errno
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field
from sqlalchemy.exc import DataError, IntegrityError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm.exc import StaleDataError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from lethe.errors import AppError, HostFault, InvalidInput, Violation, plain_message
from server.errors import Conflict, Overloaded, QuotaExceeded, RateLimited, status_of

log = structlog.get_logger()

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_FAULT_S = 5
FULL = (errno.ENOSPC, errno.EDQUOT)
TAKEN_ON_POSTGRESQL = "23505"  # unique_violation
TAKEN_ON_SQLITE = (sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)
WORKERS = "/api/v1/worker/"
SLUGS = {
    404: "not-found",
    405: "method-not-allowed",
    408: "too-slow",
    413: "too-large",
    429: RateLimited.slug,
    503: Overloaded.slug,
}  # of what is refused outside of the routes
CLIENT_GONE = 499  # as nginx logs it
SECRET_FIELDS = ("password", "old", "new", "token")


class WrongValue(BaseModel):
    """One wrong value."""

    field: str = Field(examples=["limits.submissions_per_day"])
    message: str = Field(examples=["must be greater than or equal to 1"])
    value: str | None = Field(default=None, examples=["0"])
    line: int | None = Field(default=None, description="line of the file, where there is one", examples=[12])


class Problem(BaseModel):
    """A problem document (RFC 9457)."""

    type: str = Field(examples=["urn:lethe:problem:quota-exceeded"])
    title: str = Field(examples=["The quota is used up"])
    status: int = Field(examples=[429])
    detail: str = Field(examples=["All 5 submissions of today are used; the next day begins on 02 Jan 2030, 00:00 UTC"])
    request_id: str | None = Field(default=None, description="names this request in the server's log")
    errors: list[WrongValue] = Field(default_factory=list)


@dataclass(frozen=True)
class PageError:
    """What the page about an error is made of, as AppError has it."""

    status: int
    slug: str
    title: str
    detail: str
    violations: tuple[Violation, ...] = ()
    retry_after_s: int | None = None

    @property
    def summary(self) -> str:
        return self.detail


DESCRIPTIONS = {
    400: "The request is malformed",
    401: "No token, or one that is not valid",
    403: "The caller has no permission",
    404: "Not found, or none that the caller may know of",
    408: "The body came too slowly",
    409: "The state does not allow this",
    411: "The length is missing",
    413: "The upload is too large",
    415: "The body's type is not the one that is read here",
    422: "Check your input; `errors` says which",
    429: "Too many requests, or the quota is used up",
    500: "The server failed",
    503: "Platform failure; try again",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the declaration of a route's error answers for OpenAPI."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        status: {"description": DESCRIPTIONS[status], "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in statuses
    }


def add_handlers(app: FastAPI) -> None:
    """Answer every error of the API with a problem document."""
    app.add_exception_handler(AppError, _app_error)
    app.add_exception_handler(RequestValidationError, _app_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(OperationalError, _database_away)
    app.add_exception_handler(PoolTimeout, _database_away)
    app.add_exception_handler(IntegrityError, _taken_or_unexpected)
    app.add_exception_handler(StaleDataError, _changed_meanwhile)
    app.add_exception_handler(ClientDisconnect, _client_gone)
    app.add_exception_handler(DataError, _unstorable)
    app.add_exception_handler(UnicodeEncodeError, _unstorable)
    app.add_exception_handler(OverflowError, _unstorable)
    app.add_exception_handler(OSError, _full_or_unexpected)
    app.add_exception_handler(Exception, _unexpected)


def as_app_error(error: Exception) -> AppError:
    """Return any error in the words of our own tree; pages use it as well."""
    if isinstance(error, AppError):
        return error
    if isinstance(error, RequestValidationError):
        return InvalidInput.from_violations(tuple(_violation(item) for item in error.errors()), source="request")
    return HostFault("The database does not answer; try again shortly", retry_after_s=RETRY_AFTER_FAULT_S)


def respond(request: Request, error: AppError) -> Response:
    """Return the problem document of `error`."""
    headers = {"Retry-After": str(error.retry_after_s)} if error.retry_after_s is not None else {}
    if isinstance(error, QuotaExceeded):
        headers |= error.headers
    status = status_of(error)
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    errors = [WrongValue(**vars(violation)) for violation in error.violations]
    return _document(
        request, status=status, slug=error.slug, title=error.title, detail=error.summary, errors=errors, headers=headers
    )


async def _app_error(request: Request, error: Exception) -> Response:
    app_error = as_app_error(error)
    if status_of(app_error) >= 500 and not isinstance(app_error, Overloaded):  # which the requests' own lines tell
        log.error("host fault", detail=app_error.detail)
    return respond(request, app_error)


async def _database_away(request: Request, error: Exception) -> Response:
    log.error("database does not answer", error=str(error))
    return respond(request, as_app_error(error))


async def _taken_or_unexpected(request: Request, error: Exception) -> Response:
    """Only what is unique may have been taken at this moment; any other constraint is broken by our own fault."""
    cause = getattr(error, "orig", None)
    is_taken = getattr(cause, "sqlstate", None) == TAKEN_ON_POSTGRESQL
    if not is_taken and getattr(cause, "sqlite_errorcode", None) not in TAKEN_ON_SQLITE:
        raise error
    return await _changed_meanwhile(request, error)


async def _changed_meanwhile(request: Request, error: Exception) -> Response:
    log.warning("somebody was quicker", exc_info=error)
    if request.url.path.startswith(WORKERS):  # where 409 says that a worker is refused, which ends it
        return respond(request, HostFault("Another process was quicker; try again", retry_after_s=RETRY_AFTER_FAULT_S))
    return respond(request, Conflict("Somebody else changed the same at this moment; look again, and try again"))


async def _client_gone(_: Request, __: Exception) -> Response:
    return Response(status_code=CLIENT_GONE)  # for the log: nobody reads it


async def _unstorable(request: Request, error: Exception) -> Response:
    log.info("a value cannot be stored", error=type(error).__name__)
    return respond(request, InvalidInput("A value holds a character or a number that cannot be stored"))


async def _http_error(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 500)
    detail = str(getattr(error, "detail", ""))
    slug = SLUGS.get(status, "bad-request")
    title = "Not found" if status == 404 else detail
    if detail == "Not Found":  # what the framework says of an address that no route takes
        detail = f"Nothing has the address {request.url.path[:200]}"
    return _document(
        request, status=status, slug=slug, title=title, detail=detail, headers=getattr(error, "headers", None) or {}
    )


async def _full_or_unexpected(request: Request, error: Exception) -> Response:
    if getattr(error, "errno", None) not in FULL:
        raise error
    return await _app_error(request, HostFault("A disk of the server is full; what you sent was not kept"))


async def _unexpected(request: Request, error: Exception) -> Response:
    # This is answered outside of what gives requests their ids and headers.
    request_id = getattr(request.state, "request_id", "")
    log.error("unexpected error", exc_info=error, request_id=request_id)
    return _document(
        request,
        status=500,
        slug="server-error",
        title="The server failed",
        detail="An error of the server's own; the log names it by this request_id",
        headers={"X-Request-ID": request_id},
    )


def _document(
    request: Request,
    *,
    status: int,
    slug: str,
    title: str,
    detail: str,
    errors: list[WrongValue] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    if _wants_page(request):
        shown = PageError(status=status, slug=slug, title=title, detail=detail)
        page: Response = request.app.state.error_page(request, shown)
        page.headers.update(headers or {})
        return page
    problem = Problem(
        type=f"urn:lethe:problem:{slug}",
        title=title,
        status=status,
        detail=detail,
        request_id=getattr(request.state, "request_id", None),
        errors=errors or [],
    )
    return JSONResponse(
        problem.model_dump(exclude_none=True), status_code=status, headers=dict(headers or {}), media_type=MEDIA_TYPE
    )


def _wants_page(request: Request) -> bool:
    """A person's browser, outside the API, is answered with a page where the application has one."""
    is_page = not request.url.path.startswith("/api/") and "text/html" in request.headers.get("accept", "")
    return is_page and hasattr(request.app.state, "error_page")


def _violation(item: Mapping[str, Any]) -> Violation:
    field = ".".join(str(part) for part in item["loc"] if part != "body") or "body"
    given = item.get("input")
    shown = None if given is None or isinstance(given, dict | list | bytes) else repr(given)[:120]
    secret = any(name in SECRET_FIELDS for name in field.split("."))
    return Violation(field=field, message=plain_message(item["msg"]), value=None if secret else shown)
