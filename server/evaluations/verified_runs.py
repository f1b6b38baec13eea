"""Runs that untrusted workers made: some are made again by trusted workers before an evaluation is scored.

Which ones is drawn when all runs are done, by the system's random numbers: no worker can know it while it runs them.
"""

import math
import secrets
from collections.abc import Sequence

from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from server.evaluations import evaluation_repository, evaluations, lease_repository
from server.models.competition import Split
from server.models.evaluation import Evaluation, EvaluationState, Shard, ShardKind, ShardState
from server.models.submission import Stage, Submission
from server.models.worker import WorkerToken
from server.queue import EVALUATE_SHARD, send_after_commit

NEW_TOKEN = 10  # after so many confirmed runs, half of a token's runs are checked; before the first, all
RANDOM = secrets.SystemRandom()


def share_of(token: WorkerToken, share: float) -> float:
    """Return the share of a token's runs that is checked: all of a new one's, never less than `share`, 0 of none."""
    return max(share, NEW_TOKEN / (NEW_TOKEN + token.confirmed_runs)) if share else 0.0


def draw(session: Session, evaluation_id: str, *, share: float) -> int:
    """Queue the checks that the evaluation still lacks, at least one for each untrusted token. Return how many."""
    shards = evaluation_repository.get_shards(session, [evaluation_id])
    by_token: dict[str, list[Shard]] = {}
    for shard in shards:
        if shard.kind == ShardKind.RUNS.value and shard.token_id is not None:
            by_token.setdefault(shard.token_id, []).append(shard)
    if not by_token:
        return 0
    evaluation = evaluation_repository.lock_evaluation(session, evaluation_id)
    submission = session.get_one(Submission, evaluation.submission_id)
    split = session.get_one(Split, evaluation.split_id)
    share = max(share, evaluations.competition_config(session, split).workers.verified_share)
    checked = {shard.first_run for shard in shards if shard.kind == ShardKind.CHECK.value}
    whole = evaluations.is_notebook(submission)
    pieces = [
        piece
        for token in evaluation_repository.untrusted_tokens(session, list(by_token))
        for piece in _drawn(by_token[token.id], checked, share=share_of(token, share), whole=whole)
    ]
    if pieces:
        evaluations.queue_checks(session, evaluation, submission, pieces)
    return len(pieces)


def _drawn(shards: Sequence[Shard], checked: set[int], *, share: float, whole: bool) -> list[tuple[int, int]]:
    """Return what is to be checked, each piece as its first run and how many. whole: no run can be made by itself."""
    pieces = [(shard.first_run, shard.n_runs) for shard in shards]
    if not whole:
        pieces = [(run, 1) for first, n in pieces for run in range(first, first + n)]
    known = [piece for piece in pieces if piece[0] in checked]
    left = [piece for piece in pieces if piece[0] not in checked]
    wanted = math.ceil(round(share * len(pieces), 9)) - len(known)
    return sorted(RANDOM.sample(left, min(len(left), max(0, wanted))))


def needs_trusted_attempts(session: Session, shard_id: int) -> bool:
    """Return whether a shard that was lost or given back too often was so by others than trusted workers too."""
    return not session.get_one(Shard, shard_id).trusted_only and evaluation_repository.tried_by_untrusted(
        session, shard_id
    )


def take_back(session: Session, evaluation_id: str, *, reason: str, token_id: str | None = None) -> int:
    """Drop what untrusted workers (one token's) gave, and the score of it. Return how many shards are made again."""
    evaluation = evaluation_repository.lock_evaluation(session, evaluation_id)
    taken = evaluation_repository.given_by_untrusted(session, evaluation_id, token_id)
    if not taken:
        return 0
    for shard in taken:
        lease_repository.end_attempt(session, shard.id, attempt=shard.attempt, outcome="given-back", detail=reason)
    over = evaluation.state in (EvaluationState.FAILED.value, EvaluationState.CANCELLED.value)
    state = ShardState.CANCELLED if over else ShardState.QUEUED
    evaluation_repository.clear_results(session, taken, state=state, trusted_only=True)
    if over:
        return len(taken)
    if evaluation.state in (EvaluationState.SCORING.value, EvaluationState.SCORED.value):
        evaluation_repository.delete_score(session, evaluation.id)
        reopen(session, evaluation)
    key = evaluation_repository.routing_key_for(session, evaluation.split_id)
    send_after_commit(session, EVALUATE_SHARD, times=len(taken), to=key)
    return len(taken)


def reopen(session: Session, evaluation: Evaluation) -> None:
    """Set runs that counted as done back to pending."""
    evaluation.state = EvaluationState.RUNNING.value
    evaluation.finished_at = None
    split = session.get_one(Split, evaluation.split_id)
    if evaluation.is_current and split.visibility == Visibility.PUBLIC.value:
        submission = session.get_one(Submission, evaluation.submission_id)
        submission.stage = Stage.RUNNING
        submission.finished_at = None
