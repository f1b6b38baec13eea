"""Imports every table, so that `Base.metadata` is intact wherever migrations or tests need it."""

from server.db import Base
from server.models import (
    account,
    audit,
    benchmark,
    competition,
    dataset,
    evaluation,
    invitation,
    last_time,
    leak_budget,
    metric_result,
    model_shard,
    notification,
    participation,
    question,
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
    "invitation",
    "last_time",
    "leak_budget",
    "metadata",
    "metric_result",
    "model_shard",
    "notification",
    "participation",
    "question",
    "rejudging",
    "submission",
    "worker",
]
