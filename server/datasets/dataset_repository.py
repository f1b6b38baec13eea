"""Queries about uploaded datasets."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, exists, func, select
from sqlalchemy.orm import Session, joinedload

from lethe.competition.sections import UPLOAD
from server.models.account import Account
from server.models.competition import Competition, CompetitionOrganiser, CompetitionState, Dataset

ENDED_STATES = (CompetitionState.FINAL.value, CompetitionState.ARCHIVED.value)


def by_name(session: Session, name: str) -> Dataset | None:
    return session.scalar(select(Dataset).where(Dataset.name == name, Dataset.deleted_at.is_(None)))


def datasets(session: Session, account_id: str | None) -> Sequence[Dataset]:
    """Return the datasets of an account, of all for None, by name."""
    statement = select(Dataset).options(joinedload(Dataset.account)).where(Dataset.deleted_at.is_(None))
    if account_id is not None:
        statement = statement.where(Dataset.account_id == account_id)
    return session.scalars(statement.order_by(Dataset.name)).all()


def lock_account(session: Session, account_id: str) -> None:
    """Lock the account, so that concurrent uploads cannot both pass the limit."""
    session.execute(select(Account.id).where(Account.id == account_id).with_for_update())


def usage(session: Session, account_id: str) -> tuple[int, int]:
    """Return how many datasets count for an account, and their archives' bytes; deleted ones count until collected."""
    totals = select(func.count(), func.coalesce(func.sum(Dataset.archive_bytes), 0))
    count, total = session.execute(totals.where(Dataset.account_id == account_id)).one()
    return count, int(total)


def competitions_using(session: Session, name: str) -> Sequence[str]:
    """Return the slugs of the competitions whose file names the dataset and which may be prepared again."""
    root = Competition.config["dataset"]["options"]["root"].as_string()
    wanted = root == f"{UPLOAD}{name}", Competition.state.not_in(ENDED_STATES)
    return session.scalars(select(Competition.slug).where(*wanted).order_by(Competition.slug)).all()


def organises(session: Session, *, slug: str, account_id: str) -> bool:
    """Return whether an account organises the competition called `slug`."""
    root = func.coalesce(Competition.parent_id, Competition.id)
    same = Competition.slug == slug, root == CompetitionOrganiser.competition_id
    return bool(session.scalar(select(exists().where(*same, CompetitionOrganiser.account_id == account_id))))


def get_creator(session: Session, *, slug: str) -> Account:
    """Return who created the competition called `slug`."""
    statement = select(Account).join(Competition, Competition.created_by == Account.id)
    return session.scalars(statement.where(Competition.slug == slug)).one()


def created_before(session: Session, at: datetime, *, account_id: str | None) -> Sequence[Dataset]:
    """Return the datasets, of one account or for None of all, uploaded before a moment and not deleted."""
    statement = select(Dataset).where(Dataset.created_at < at, Dataset.deleted_at.is_(None))
    return session.scalars(statement.where(Dataset.account_id == account_id) if account_id else statement).all()


def forget_deleted(session: Session, *, before: datetime) -> None:
    """Remove the rows of what was deleted before a moment."""
    session.execute(delete(Dataset).where(Dataset.deleted_at < before))
