"""Standings on a split: what the paired test compares, and the tied groups that it finds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from server.models.competition import Split
from server.scoring import tie_groups_repository


@dataclass(frozen=True)
class TeamStanding:
    """The best evaluation of one team, and the replicates that were made with its score."""

    evaluation_id: str
    final_score: float
    replicates: dict[str, Any]


def of_split(session: Session, split_id: str) -> list[TeamStanding]:
    """Return every ranked team's standing on the split; scores without replicates are left out."""
    split = session.get_one(Split, split_id)
    return [
        TeamStanding(row.evaluation_id, row.final_score, row.replicates)
        for row in tie_groups_repository.best_of_teams(session, split)
        if row.replicates is not None
    ]


def record_groups(session: Session, split_id: str, groups: Mapping[str, int]) -> None:
    """Store the tied group of each evaluation, by evaluation id; 0 is the group of the best."""
    tie_groups_repository.set_groups(session, session.get_one(Split, split_id), groups)
