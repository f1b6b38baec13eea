"""Statistically tied groups of a split's board, by the paired test over models."""

from typing import Any

import numpy as np
import structlog

from lethe.metrics.core.invalid_input import InvalidScoreInput
from lethe.metrics.scoring.paired_test import ScoredEntry, tied_groups
from lethe.metrics.scoring.resampling import Replicates
from server.db import Database
from server.scoring import tie_groups

log = structlog.get_logger()


def replicates_as_data(replicates: Replicates) -> dict[str, Any]:
    """Return what a paired test needs, as plain numbers."""
    return {
        "forgetting_quality": replicates.forgetting_quality.tolist(),
        "headline": replicates.headline.tolist(),
        "factor": replicates.factor,
        "seed": replicates.seed,
        "n_models": replicates.n_models,
    }


def replicates_from_data(data: dict[str, Any]) -> Replicates:
    """Return the replicates that `replicates_as_data` wrote."""
    return Replicates(
        forgetting_quality=np.asarray(data["forgetting_quality"], dtype=np.float64),
        headline=np.asarray(data["headline"], dtype=np.float64),
        factor=float(data["factor"]),
        seed=int(data["seed"]),
        n_models=int(data["n_models"]),
    )


def group_ties(database: Database, split_id: str) -> int:
    """Group the board of the split again. Return how many teams were compared."""
    with database.read() as session:
        found = tie_groups.of_split(session, split_id)
    compared = [ScoredEntry(team.final_score, replicates_from_data(team.replicates)) for team in found]
    try:
        groups = tied_groups(compared)
    except InvalidScoreInput as error:  # scores made with another number of resamples stand beside these
        log.warning("ties not grouped", split=split_id, reason=str(error))
        return 0
    with database.write() as session:
        tie_groups.record_groups(
            session, split_id, {team.evaluation_id: group for team, group in zip(found, groups, strict=True)}
        )
    return len(found)
