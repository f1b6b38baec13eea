"""SQL of standings: the best score of every team on a split, with what a paired test needs of it."""

from collections.abc import Mapping, Sequence
from typing import cast

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session, undefer

from server.models.competition import Split, Team
from server.models.evaluation import Evaluation, PrivateScore, PublicScore, score_table
from server.models.submission import Submission


def best_of_teams(session: Session, split: Split) -> Sequence[PublicScore | PrivateScore]:
    """Return each ranked team's best current score on the split, the replicates loaded."""
    table = score_table(split.visibility)
    place = func.row_number().over(
        partition_by=Submission.team_id, order_by=(table.final_score.desc(), Submission.received_at, Submission.id)
    )
    placed = (
        select(table.evaluation_id, table.is_unconfirmed, place.label("place"))
        .join(Submission, Submission.id == table.submission_id)
        .join(Evaluation, Evaluation.id == table.evaluation_id)
        .join(Team, Team.id == Submission.team_id)
        .where(
            Evaluation.split_id == split.id,
            Evaluation.is_current.is_(True),
            Submission.is_official.is_(True),
            Submission.disqualified_at.is_(None),
            Team.disqualified_at.is_(None),
            Team.is_baseline.is_(False),
            *((Submission.selected.is_(True), Submission.excluded_at.is_(None)) if table is PrivateScore else ()),
        )
    ).subquery()
    statement = (
        select(table)
        .join(placed, placed.c.evaluation_id == table.evaluation_id)
        .where(placed.c.place == 1, placed.c.is_unconfirmed.is_(False))
        .options(undefer(table.replicates))
    )
    return cast(Sequence[PublicScore | PrivateScore], session.scalars(statement).all())


def set_groups(session: Session, split: Split, groups: Mapping[str, int]) -> None:
    """Store the tied group of each evaluation, by evaluation id."""
    table = score_table(split.visibility)
    for evaluation_id, group in groups.items():
        session.execute(
            update(table)
            .where(table.evaluation_id == evaluation_id, table.tied_group.is_distinct_from(group))
            .values(tied_group=group)
        )
