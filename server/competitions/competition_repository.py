"""Queries about competitions, their organisers and splits."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import and_, delete, exists, or_, select
from sqlalchemy.orm import Session, aliased, defer

from lethe.competition.visibility import Visibility
from lethe.errors import NotFound
from server.models.account import Account
from server.models.competition import Competition, CompetitionOrganiser, CompetitionState, ModelShard, Split
from server.models.evaluation import Evaluation
from server.models.registry import metadata

DELETED = "deleted-"  # begins the slug that a deleted draft leaves behind


def by_slug(session: Session, slug: str) -> Competition | None:
    return session.scalar(select(Competition).where(Competition.slug == slug))


def everything(session: Session) -> Sequence[Competition]:
    """Return every competition, the latest to open first; cells of benchmarks are none, nor are single tasks."""
    competitions = select(Competition).where(Competition.cell_key.is_(None), Competition.parent_id.is_(None))
    return session.scalars(competitions.order_by(Competition.opens_at.desc(), Competition.slug)).all()


def evaluated(session: Session, competition_ids: Sequence[str]) -> Sequence[Competition]:
    """Return what is evaluated of these competitions: the tasks of each, or itself where it has none."""
    task = aliased(Competition)
    has_tasks = exists().where(task.parent_id == Competition.id)
    chosen = or_(Competition.id.in_(competition_ids), Competition.parent_id.in_(competition_ids))
    statement = select(Competition).where(chosen, ~has_tasks)
    return session.scalars(statement.order_by(Competition.slug, Competition.task_place)).all()


def tasks(session: Session, competition_id: str) -> Sequence[Competition]:
    """Return the tasks of a competition, in the order of its file; nothing for one without, and for a task."""
    mine = Competition.parent_id == competition_id, Competition.task_name.is_not(None)
    statement = select(Competition).where(*mine)
    return session.scalars(statement.order_by(Competition.task_place)).all()


def locked(session: Session, competition_id: str) -> Competition:
    """Return the competition, its row locked until the transaction ends. Raises NotFound for a deleted draft."""
    competition = session.get_one(Competition, competition_id, with_for_update=True, populate_existing=True)
    if competition.state == CompetitionState.DRAFT and competition.slug.startswith(DELETED):
        raise NotFound("The draft was deleted")
    return competition


def locked_with_root(session: Session, competition_id: str) -> Competition:
    """Return the competition as `locked` does; of a task, the row of its competition is locked before it."""
    root_id = session.scalar(select(Competition.parent_id).where(Competition.id == competition_id))
    if root_id is not None:
        locked(session, root_id)
    return locked(session, competition_id)


def held(session: Session, competition_id: str) -> Competition:
    """Return the competition, locked FOR SHARE: its state cannot change before this transaction ends."""
    return session.get_one(Competition, competition_id, with_for_update={"read": True}, populate_existing=True)


def due(session: Session, at: datetime) -> Sequence[str]:
    """Return the ids of the competitions that may have to move by themselves; tasks move with theirs."""
    state = Competition.state
    statement = (
        select(Competition.id)
        .where(Competition.parent_id.is_(None))
        .where(
            or_(
                state == CompetitionState.PREPARING,
                and_(state == CompetitionState.READY, Competition.opens_at <= at),
                and_(state == CompetitionState.OPEN, Competition.closes_at <= at),
                state == CompetitionState.CLOSED,
            )
        )
    )
    return session.scalars(statement.order_by(Competition.closes_at, Competition.id)).all()


def taking_baselines(session: Session, at: datetime) -> Sequence[Competition]:
    """Return the competitions whose splits are ready and which have not closed."""
    states = [CompetitionState.READY.value, CompetitionState.OPEN.value]
    statement = select(Competition).options(defer(Competition.source))
    competing = Competition.state.in_(states), Competition.closes_at > at, Competition.cell_key.is_(None)
    return session.scalars(statement.where(*competing)).all()


def organises(session: Session, *, competition_id: str, account_id: str) -> bool:
    return session.get(CompetitionOrganiser, (competition_id, account_id)) is not None


def organisers(session: Session, competition: Competition) -> Sequence[Account]:
    """Return the accounts that organise a competition, by name. Administrators run every one beside them."""
    statement = (
        select(Account)
        .join(CompetitionOrganiser, CompetitionOrganiser.account_id == Account.id)
        .where(CompetitionOrganiser.competition_id == competition.root_id)
    )
    return session.scalars(statement.order_by(Account.name_key)).all()


def remove_organiser(session: Session, *, competition_id: str, account_id: str) -> None:
    same = CompetitionOrganiser.competition_id == competition_id, CompetitionOrganiser.account_id == account_id
    session.execute(delete(CompetitionOrganiser).where(*same))


def organised_by(session: Session, account_id: str) -> frozenset[str]:
    """Return the ids of the competitions that this account organises."""
    mine = select(CompetitionOrganiser.competition_id).where(CompetitionOrganiser.account_id == account_id)
    return frozenset(session.scalars(mine))


def any_in_state(session: Session, state: CompetitionState) -> bool:
    return session.scalar(select(Competition.id).where(Competition.state == state.value).limit(1)) is not None


def splits(session: Session, competition_id: str) -> Sequence[Split]:
    """Return the current splits, the public one last (P-R-I before P-U-B); with tasks those of each task."""
    statement = (
        select(Split)
        .join(Competition, Competition.id == Split.competition_id)
        .where(or_(Competition.id == competition_id, Competition.parent_id == competition_id), Split.is_current)
        .order_by(Competition.task_place, Split.visibility)
    )
    return session.scalars(statement.execution_options(populate_existing=True)).all()


def replacements(session: Session, competition_id: str) -> Sequence[Split]:
    """Return the highest version of each split where that is not the current one; with tasks those of each task."""
    other = aliased(Split)
    same = other.competition_id == Split.competition_id, other.visibility == Split.visibility
    statement = (
        select(Split)
        .join(Competition, Competition.id == Split.competition_id)
        .where(or_(Competition.id == competition_id, Competition.parent_id == competition_id), ~Split.is_current)
        .where(~exists().where(*same, other.version > Split.version))
        .order_by(Competition.task_place, Split.visibility)
    )
    return session.scalars(statement.execution_options(populate_existing=True)).all()


def is_evaluated_on(session: Session, split_id: str) -> bool:
    return session.scalar(select(Evaluation.id).where(Evaluation.split_id == split_id).limit(1)) is not None


def split(session: Session, *, competition_id: str, visibility: Visibility) -> Split | None:
    mine = Split.competition_id == competition_id, Split.visibility == visibility.value
    return session.scalar(select(Split).where(*mine, Split.is_current))


def latest_split(session: Session, *, competition_id: str, visibility: Visibility) -> Split | None:
    """Return the highest version of a split: the current one, or what is to replace it."""
    mine = Split.competition_id == competition_id, Split.visibility == visibility.value
    statement = select(Split).where(*mine).order_by(Split.version.desc()).limit(1)
    return session.scalar(statement.execution_options(populate_existing=True))


def model_shards(session: Session, split_ids: Sequence[str]) -> Sequence[ModelShard]:
    """Return the shards of these splits' preparations in the order in which they are made."""
    statement = select(ModelShard).where(ModelShard.split_id.in_(split_ids)).order_by(ModelShard.id)
    return session.scalars(statement.execution_options(populate_existing=True)).all()


def forget(session: Session, competition_id: str) -> None:
    """Remove every row that the schema removes with a competition, whose own row stays for the audit log."""
    for table in reversed(metadata.sorted_tables):
        for key in table.foreign_keys:
            if key.column is Competition.__table__.c.id and key.ondelete == "CASCADE":
                session.execute(delete(table).where(key.parent == competition_id))
    session.expire_all()


def forget_replacements(session: Session, competition_id: str) -> None:
    """Delete the versions of splits that are not the current ones, of every task."""
    own = select(Competition.id).where(or_(Competition.id == competition_id, Competition.parent_id == competition_id))
    session.execute(delete(Split).where(Split.competition_id.in_(own), ~Split.is_current))


def forget_model_shards(session: Session, split_id: str) -> None:
    """Delete a split's shards: its preparation starts again, and reuses the models that are stored."""
    session.execute(delete(ModelShard).where(ModelShard.split_id == split_id))
