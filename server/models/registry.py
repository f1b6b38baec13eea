"""Imports every table, so that `Base.metadata` is whole wherever migrations or tests need it."""

from server.db import Base
from server.models import (
    account,
    audit,
    competition,
    evaluation,
    invitation,
    notification,
    organising,
    submission,
    worker,
)

metadata = Base.metadata
__all__ = [
    "account",
    "audit",
    "competition",
    "evaluation",
    "invitation",
    "metadata",
    "notification",
    "organising",
    "submission",
    "worker",
]
