"""Errors of a service that people use over HTTP, and the HTTP status of every error."""

from lethe.errors import AppError, HostFault, InvalidInput, NotFound


class NotRevealed(NotFound):
    """Private scores before their reveal: not there, as everything else that the reader may not see."""

    title = "Not revealed yet"


class NotAuthenticated(AppError):
    slug, title = "not-authenticated", "Log in first"


class NotAllowed(AppError):
    slug, title = "not-allowed", "No permission"


class Conflict(AppError):
    slug, title = "conflict", "The state does not allow this"


class TooLarge(AppError):
    slug, title = "too-large", "The upload is too large"


class UnsupportedMedia(AppError):
    slug, title = "unsupported-media", "The body's type is not the one that is read here"


class QuotaExceeded(AppError):
    """`headers` say what is left and when more is, as in every other answer about submissions."""

    slug, title = "quota-exceeded", "The quota is used up"

    def __init__(self, detail: str, *, headers: dict[str, str], retry_after_s: int | None = None) -> None:
        super().__init__(detail, retry_after_s=retry_after_s)
        self.headers = headers


class RateLimited(AppError):
    slug, title = "rate-limited", "Too many requests"


class Overloaded(HostFault):
    """More requests wait than the server can answer within reason."""

    slug, title = "overloaded", "The server has too much to do"


STATUS: dict[type[AppError], int] = {
    AppError: 400,
    NotAuthenticated: 401,
    NotAllowed: 403,
    NotFound: 404,
    Conflict: 409,
    TooLarge: 413,
    UnsupportedMedia: 415,
    InvalidInput: 422,
    QuotaExceeded: 429,
    RateLimited: 429,
    HostFault: 503,
}


def status_of(error: AppError) -> int:
    """Return the HTTP status of an error: that of the nearest class above it in the table."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
