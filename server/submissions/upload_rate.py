"""A limit on how many files one account sends: each is read, parsed and stored before it can be refused."""

from functools import lru_cache

from server.accounts.rate_limit import Throttle
from server.config import Settings

WINDOW_S = 600


def take(settings: Settings, account_id: str) -> None:
    """Count one upload. Raises RateLimited, saying when to come back."""
    if settings.uploads_per_10_min:
        throttle(settings.uploads_per_10_min).take(account_id)


@lru_cache
def throttle(limit: int) -> Throttle:
    """Return this process's count of uploads."""
    return Throttle(limit, window_s=WINDOW_S, what="files were sent")
