"""Imports every table, so that `Base.metadata` is whole wherever migrations or tests need it."""

from server.db import Base
from server.models import (
    account,
    audit,
    competition,
    disclosure,
    evaluation,
    invitation,
    notification,
    organising,
    preparing,
    submission,
    worker,
)

metadata = Base.metadata
__all__ = [
    "account",
    "audit",
    "competition",
    "disclosure",
    "evaluation",
    "invitation",
    "metadata",
    "notification",
    "organising",
    "preparing",
    "submission",
    "worker",
]
