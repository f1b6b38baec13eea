"""Tied groups of a board: from stored replicates to the groups in the database, on the board of one split only."""

import numpy as np

from lethe.metrics.scoring.resampling import Replicates
from server.db import Database
from server.models.competition import Split
from server.models.evaluation import Evaluation, EvaluationState, PublicScore
from server.models.submission import Submission
from server.scoring import scores
from server.scoring.scores import ScoreRecord
from tests.server.evaluations.conftest import add_submission, competition, database, sent
from worker.evaluation.scoring_job import group_ties, replicates_as_data, replicates_from_data

__all__ = ["competition", "database", "sent"]


def replicates(seed: int, *, level: float) -> Replicates:
    values = level + 0.01 * np.random.default_rng(seed).standard_normal(40)
    return Replicates(forgetting_quality=values, headline=values, factor=1.0, seed=0, n_models=512)


def score(database: Database, submission: Submission, level: float, seed: int) -> str:
    with database.write() as session:
        evaluation = session.query(Evaluation).filter_by(submission_id=submission.id).one()
        evaluation.state = EvaluationState.SCORING.value
        record = ScoreRecord(
            final_score=level,
            forgetting_quality=level,
            retain_ratio=1.0,
            test_ratio=1.0,
            details={},
            replicates=replicates_as_data(replicates(seed, level=level)),
        )
        assert scores.record(session, evaluation.id, record)
        return evaluation.split_id


def test_teams_that_the_test_does_not_tell_apart_share_a_group(database, competition, sent):
    levels = {"first": 0.300, "second": 0.299, "far": 0.100}
    for seed, (team, level) in enumerate(levels.items()):
        split_id = score(database, add_submission(database, competition, team), level, seed)
    assert "lethe.group_ties" in sent
    assert group_ties(database, split_id) == 3
    with database.read() as session:
        assert session.get_one(Split, split_id).visibility == "public"
        groups = {row.final_score: row.tied_group for row in session.query(PublicScore)}
    assert groups == {0.300: 0, 0.299: 0, 0.100: 1}


def test_replicates_survive_being_stored() -> None:
    before = replicates(3, level=0.2)
    after = replicates_from_data(replicates_as_data(before))
    before.require_paired(after)
    np.testing.assert_array_equal(before.headline, after.headline)
