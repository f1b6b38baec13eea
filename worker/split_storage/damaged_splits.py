"""What a worker does where a file of a split is damaged in the instance's own storage."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import structlog

from lethe.data.errors import DamagedSplit
from server.competitions import damaged_splits
from server.db import Database
from server.models.evaluation import Evaluation

log = structlog.get_logger()


class HasDatabase(Protocol):
    @property
    def database(self) -> Database: ...


@contextmanager
def made_again_where_damaged(context: HasDatabase, evaluation_id: str) -> Iterator[None]:
    """Have the split of an evaluation checked, and what is damaged made again, where what is done here finds that."""
    try:
        yield
    except DamagedSplit as error:
        with context.database.write() as session:
            split_id = session.get_one(Evaluation, evaluation_id).split_id
            queued = damaged_splits.check_again(session, split_id, reason=error.detail)
        log.error("a file of the split is damaged", split=split_id, check_queued=queued, reason=error.detail)  # noqa: TRY400
        raise
