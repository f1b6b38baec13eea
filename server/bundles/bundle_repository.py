"""Which submissions a bundle holds, and which competitions its seeds could serve."""

from collections.abc import Collection, Sequence

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session, joinedload

from server.models.competition import Competition, CompetitionState, Team
from server.models.submission import Stage, Submission


def published(session: Session, competition_id: str, *, on_boards: Collection[str]) -> Sequence[Submission]:
    """Return what stands on boards (ids) or may be published, the earliest first, of parts the whole."""
    parent_submission_ids = select(Submission.parent_id).where(
        Submission.id.in_(on_boards), Submission.parent_id.is_not(None)
    )
    agreed = Submission.publish_code.is_(True) & (Submission.stage == Stage.SCORED)
    statement = (
        select(Submission)
        .join(Team, Team.id == Submission.team_id)
        .where(Submission.competition_id == competition_id)
        .where(Submission.disqualified_at.is_(None), Team.disqualified_at.is_(None))
        .where(or_(Submission.id.in_(on_boards), Submission.id.in_(parent_submission_ids), agreed))
        .options(joinedload(Submission.competition), joinedload(Submission.team), joinedload(Submission.account))
    )
    return session.scalars(statement.order_by(Submission.received_at, Submission.id)).all()


def others_not_archived(session: Session, competition_id: str) -> Sequence[Competition]:
    """Return all competitions but this one, tasks included; cells of benchmarks, which never open, are none."""
    others = Competition.id != competition_id, func.coalesce(Competition.parent_id, "") != competition_id
    statement = select(Competition).where(*others, Competition.cell_key.is_(None))
    return session.scalars(statement.where(Competition.state != CompetitionState.ARCHIVED.value)).all()
