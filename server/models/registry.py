"""Imports every table, so that `Base.metadata` is intact wherever migrations or tests need it."""

from server.db import Base
from server.models import (
    account,
    audit,
    benchmark,
    competition,
    dataset,
    evaluation,
    notification,
    participation,
    rejudging,
    submission,
    worker,
)

metadata = Base.metadata
__all__ = [
    "account",
    "audit",
    "benchmark",
    "competition",
    "dataset",
    "evaluation",
    "metadata",
    "notification",
    "participation",
    "rejudging",
    "submission",
    "worker",
]
