"""One submission for its organisers: score and epsilons, runs beside retrained models, attempts, logs, comparisons."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from lethe.errors import NotFound
from server.disclosure import gate
from server.downloads import spool
from server.errors import Conflict
from server.evaluations import paired_test
from server.evaluations.paired_test import Paired
from server.leaderboard import boards
from server.models.competition import Competition
from server.models.evaluation import Evaluation, PrivateScore, PublicScore, Shard, ShardAttempt
from server.models.submission import Submission
from server.scoring.scores import ScoreDoubt
from server.storage import Storage
from server.submission_analysis import analysis_repository
from server.submission_analysis.model_outputs import (
    Array,
    GeneratedAnswers,
    ModelSet,
    OutputComparison,
    compare_outputs,
    decode_epsilons,
    read_arrays,
    read_generated_answers,
)

MAX_SUGGESTIONS = 30
Score = PublicScore | PrivateScore
list_logs = analysis_repository.list_logs


@dataclass(frozen=True)
class EvaluatedSubmission:
    """A submission on one split: the evaluation that counts and its score, if it has them."""

    submission: Submission
    visibility: Visibility
    evaluation: Evaluation | None
    score: Score | None

    @property
    def epsilon(self) -> Array | None:
        """The epsilon of each forget example, [S], or None where none are stored."""
        return decode_epsilons(self.score.epsilon) if self.score else None

    @property
    def doubt(self) -> ScoreDoubt | None:
        """Why the score may not mean what it says."""
        return ScoreDoubt.read(self.score.details) if self.score else None


def get_evaluated(
    session: Session, competition: Competition, submission_id: str, visibility: Visibility
) -> EvaluatedSubmission:
    """Return a submission to the competition on one split. Raises NotFound."""
    gate.check_computed(competition, visibility)
    submission = analysis_repository.submission(session, competition.id, submission_id)
    if submission is None:
        raise NotFound(f"{competition.slug} has no submission {submission_id!r}")
    evaluation, score = analysis_repository.current_evaluation(session, submission.id, visibility) or (None, None)
    return EvaluatedSubmission(submission, visibility, evaluation, score)


def get_output_comparison(
    session: Session, storage: Storage, competition: Competition, evaluated: EvaluatedSubmission
) -> OutputComparison | None:
    """Return the outputs of the runs and of the retrained models, or None where they are not all stored."""
    if evaluated.evaluation is None or evaluated.score is None:
        return None
    shards = analysis_repository.shards_with_results(session, evaluated.evaluation.id)
    split = evaluated.evaluation.split
    return compare_outputs(storage, split, competition.slug, shards, epsilon=evaluated.epsilon)


def get_arrays(
    session: Session, storage: Storage, competition: Competition, evaluated: EvaluatedSubmission, *, side: ModelSet
) -> Iterator[bytes]:
    """Return, piece by piece, a file of numpy (.npz) with the arrays of one set of models. Raises NotFound."""
    if evaluated.evaluation is None or evaluated.score is None:
        raise NotFound(f"{evaluated.submission.id} has no score on the {evaluated.visibility} split")
    shards = analysis_repository.shards_with_results(session, evaluated.evaluation.id)
    n_stored, n_runs = sum(shard.n_runs for shard in shards), evaluated.evaluation.n_runs
    if side is ModelSet.UNLEARNED and 0 < n_stored < n_runs:
        raise NotFound(f"The outputs of {n_stored} of {n_runs} runs are stored; those of the others are made again")
    arrays = read_arrays(storage, evaluated.evaluation.split, competition.slug, shards, side=side)
    return spool(lambda file: np.savez(file, allow_pickle=False, **arrays))


def get_generated_answers(
    session: Session, storage: Storage, competition: Competition, evaluated: EvaluatedSubmission, *, run: int
) -> GeneratedAnswers | None:
    """Return the answers to forget questions of a run (from 0), None if not stored. Raises NotFound."""
    if evaluated.evaluation is None or evaluated.score is None:
        return None
    shards = analysis_repository.shards_with_results(session, evaluated.evaluation.id)
    return read_generated_answers(storage, evaluated.evaluation.split, competition.slug, shards, run=run)


def list_attempts(session: Session, evaluated: EvaluatedSubmission) -> Sequence[tuple[ShardAttempt, Shard]]:
    """Return every attempt at the evaluation's shards, the earliest first."""
    return analysis_repository.attempts(session, evaluated.evaluation.id) if evaluated.evaluation else []


def suggest_comparisons(
    session: Session, competition: Competition, evaluated: EvaluatedSubmission
) -> Sequence[tuple[str, str]]:
    """Return id and description of submissions to compare this one with: the board's best, the team's own."""
    board = boards.board_for(session, competition, evaluated.visibility, organiser=True)
    best = (
        (row.entry.submission_id, f"{row.entry.team}, {row.entry.score:.5f}")
        for row in board.rows
        if row.entry.submission_id
    )
    team = evaluated.submission.team
    scored = analysis_repository.scored_of_team(session, team.id, evaluated.visibility, limit=MAX_SUGGESTIONS)
    own = [(submission_id, f"{team.name}, {score:.5f}, {note}") for submission_id, note, score in scored]
    suggested = dict([*islice(best, MAX_SUGGESTIONS), *own])
    suggested.pop(evaluated.submission.id, None)
    return list(suggested.items())


def compare(first: EvaluatedSubmission, second: EvaluatedSubmission) -> Paired:
    """Compare two scores on one split by the paired test. Raises Conflict if they cannot be paired."""
    if first.score is None or second.score is None:
        raise Conflict(f"One of the submissions has no score on the {first.visibility} split")
    replicates = first.score.replicates, second.score.replicates
    return paired_test.compare(first.score.final_score, second.score.final_score, replicates=replicates)
