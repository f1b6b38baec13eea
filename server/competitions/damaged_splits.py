"""A split of which a worker found a file damaged: every file is checked, and what is damaged is made again."""

from datetime import timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from server import audit, queue
from server.audit import EventFilter
from server.competitions import competition_repository, lifecycle, stalled_preparations
from server.db import clock
from server.models.competition import Competition, Split, SplitState

DAMAGED = "split.damaged"
NEW_FOR = timedelta(minutes=1)  # after a preparation: who began to read before it finds another manifest
CHECKS_PER_HOUR = 3  # of a competition: what is damaged again and again has a cause that no check removes


def check_again(session: Session, split_id: str, *, reason: str) -> bool:
    """Queue the check of a ready split. Return False where it waits for one already, was just made, or is over."""
    split = session.scalars(
        select(Split).where(Split.id == split_id).with_for_update().execution_options(populate_existing=True)
    ).one()
    competition = session.get_one(Competition, split.competition_id)
    at = clock(session)
    is_new = split.prepared_at is not None and split.prepared_at > at - NEW_FOR
    if split.state != SplitState.READY or is_new or lifecycle.is_revealed(competition):
        return False
    lately = EventFilter(competition_id=competition.id, action=DAMAGED, since=at - timedelta(hours=1))
    if len(audit.events(session, lately, limit=CHECKS_PER_HOUR)) >= CHECKS_PER_HOUR:
        return False
    stalled_preparations.check(split, at)
    competition_repository.forget_model_shards(session, split.id)
    data = {"split": split.visibility, "found": reason}
    audit.record(session, None, DAMAGED, competition, data=data)
    queue.send_after_commit(session, queue.PREPARE_SPLIT, split.id)
    return True
