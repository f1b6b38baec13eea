"""A preparation that ends before its splits are made: one of them failed, or its organiser called it off."""

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.competitions import competition_repository, lifecycle, stalled_preparations
from server.errors import Conflict
from server.models.account import Account
from server.models.competition import Competition, CompetitionState, Split, SplitState

UNFINISHED = (SplitState.PENDING.value, SplitState.PREPARING.value)


def locked_with_twin(session: Session, split_id: str) -> Sequence[Split]:
    """Return both splits of a competition as they are now, of every task of it, locked in one order by whoever does."""
    root = func.coalesce(Competition.parent_id, Competition.id)
    split = select(root).join(Split, Split.competition_id == Competition.id).where(Split.id == split_id)
    competitions = select(Competition.id).where(root == split.scalar_subquery())
    every = select(Split).where(Split.competition_id.in_(competitions)).order_by(Split.id).with_for_update()
    return session.scalars(every.execution_options(populate_existing=True)).all()


def stop_twins(session: Session, failed: Split) -> None:
    """End the preparation of the other splits: the file has to change, and nobody waits for models that nothing uses.

    Only in a first preparation. Whoever works on it learns at the next heartbeat that it is no longer theirs.
    """
    competition = session.get_one(Competition, failed.competition_id)
    if competition.state != CompetitionState.PREPARING:
        return
    for twin in locked_with_twin(session, failed.id):
        if twin.id != failed.id and twin.state in UNFINISHED:
            stalled_preparations.let_go(twin)
            twin.state = SplitState.FAILED.value
            of_task = f" of the task {competition.task_name}" if competition.task_name else ""
            twin.error = f"stopped, since the {failed.visibility} split{of_task} failed: {failed.error}"
            competition_repository.forget_model_shards(session, twin.id)


def cancel(session: Session, competition: Competition, *, actor: Account) -> Competition:
    """Call a first preparation off; the competition is a draft again. Raises Conflict once it has ended."""
    lifecycle.require_no_task(competition)
    competition = competition_repository.locked(session, competition.id)
    if competition.state == CompetitionState.DRAFT:
        return competition
    if competition.state != CompetitionState.PREPARING:
        raise Conflict(f"{competition.slug} is {competition.state}; only a preparation under way can be cancelled")
    for split in competition_repository.splits(session, competition.id):
        if split.state != SplitState.READY:
            stalled_preparations.let_go(split)
            competition_repository.forget_model_shards(session, split.id)
    lifecycle.move(session, competition, CompetitionState.DRAFT, actor=actor, reason="the preparation was cancelled")
    session.flush()
    return competition
