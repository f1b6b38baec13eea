"""SQL of evaluations, shards and their attempts; of runs that are verified, and of what was disclosed."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, and_, delete, func, or_, select, true, update
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from server.db import changed_rows, changes_one_row, database_time
from server.evaluations.queue_repository import in_state
from server.models.competition import Competition, Split, Team
from server.models.evaluation import (
    Disclosure,
    Evaluation,
    EvaluationState,
    MetricResult,
    PrivateScore,
    PublicScore,
    Shard,
    ShardAttempt,
    ShardKind,
    ShardState,
)
from server.models.submission import Fault, Submission
from server.models.worker import WorkerToken
from server.queue import RoutingKey


def untrusted_tokens(session: Session, token_ids: Sequence[str]) -> Sequence[WorkerToken]:
    mine = WorkerToken.id.in_(token_ids), WorkerToken.trusted.is_(False)
    return session.scalars(select(WorkerToken).where(*mine).order_by(WorkerToken.id)).all()


def tried_by_untrusted(session: Session, shard_id: int) -> bool:
    """Return whether an untrusted worker made an attempt at the shard: its name begins with its token."""
    names = session.scalars(select(ShardAttempt.worker).where(ShardAttempt.shard_id == shard_id)).all()
    return bool(untrusted_tokens(session, [name.partition("/")[0] for name in names]))


def given_by_untrusted(session: Session, evaluation_id: str, token_id: str | None) -> Sequence[Shard]:
    """Return the shards of runs that untrusted workers, or those of one token, hold or have done."""
    whose = Shard.token_id.is_not(None) if token_id is None else Shard.token_id == token_id
    mine = Shard.evaluation_id == evaluation_id, Shard.kind == ShardKind.RUNS.value, whose
    held = Shard.state.in_([ShardState.LEASED.value, ShardState.DONE.value])
    return session.scalars(select(Shard).where(*mine, held).order_by(Shard.id)).all()


def clear_results(session: Session, shards: Sequence[Shard], *, state: ShardState, trusted_only: bool) -> None:
    """Empty these shards of one evaluation, and remove the checks of their runs. trusted_only: who makes them again."""
    of_them = or_(*(Shard.first_run.between(shard.first_run, shard.first_run + shard.n_runs - 1) for shard in shards))
    checks = Shard.evaluation_id == shards[0].evaluation_id, Shard.kind == ShardKind.CHECK.value
    session.execute(delete(Shard).where(*checks, of_them))
    session.execute(
        update(Shard)
        .where(Shard.id.in_([shard.id for shard in shards]))
        .values(
            state=state.value,
            worker=None,
            token_id=None,
            trusted_only=true() if trusted_only else Shard.trusted_only,
            lease_expires_at=None,
            queued_at=database_time(),
            runs_done=0,
            wall_time_s=0.0,
            result_key=None,
            result_sha256=None,
        )
        .execution_options(synchronize_session="fetch")
    )


def delete_score(session: Session, evaluation_id: str) -> None:
    """Remove the score of an evaluation and the metrics beside it."""
    for table in (PublicScore, PrivateScore, MetricResult):
        session.execute(delete(table).where(table.evaluation_id == evaluation_id))


def lock_team(session: Session, team_id: str) -> None:
    """Lock the team, so that one transaction at a time counts its bits (SQLite: locks the whole database)."""
    # Not FOR UPDATE, which would wait for every transaction that has added a row of this team.
    session.execute(select(Team.id).where(Team.id == team_id).with_for_update(key_share=True))


def lock_team_of(session: Session, submission_id: str) -> None:
    """Lock the team of a submission, which is not loaded: another transaction may change it meanwhile."""
    theirs = select(Submission.team_id).where(Submission.id == submission_id).scalar_subquery()
    session.execute(select(Team.id).where(Team.id == theirs).with_for_update(key_share=True))


def bits_told(session: Session, team_id: str, *, since: datetime, before: datetime) -> float:
    """Return the bits that failures have told a team in [since, before), whoever sent the submissions then."""
    told = (
        select(func.coalesce(func.sum(Disclosure.bits), 0.0))
        .join(Submission, Submission.id == Disclosure.submission_id)
        .where(Submission.team_id == team_id, Disclosure.disclosed_at >= since, Disclosure.disclosed_at < before)
    )
    return float(session.scalars(told).one())


def get_evaluation(session: Session, submission_id: str, split_id: str, *, scorer_version: str) -> Evaluation | None:
    return session.scalar(
        select(Evaluation).where(
            Evaluation.submission_id == submission_id,
            Evaluation.split_id == split_id,
            Evaluation.scorer_version == scorer_version,
        )
    )


def routing_key_for(session: Session, split_id: str) -> RoutingKey:
    """Return who may serve the split's shards."""
    statement = select(Split.device, Competition.slug).join(Competition, Competition.id == Split.competition_id)
    return RoutingKey(*session.execute(statement.where(Split.id == split_id)).one())


def lock_evaluation(session: Session, evaluation_id: str) -> Evaluation:
    """Return the evaluation, held until the transaction ends: closing shards one after the other is what makes
    the last one know that it is the last."""
    return session.scalars(
        select(Evaluation)
        .where(Evaluation.id == evaluation_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    ).one()


def cancel_open_shards(session: Session, evaluation_id: str) -> None:
    """Take every shard that is not done out of the queue and away from its worker, whose attempt ends with it."""
    session.execute(
        update(Shard)
        .where(
            Shard.evaluation_id == evaluation_id, Shard.state.in_([ShardState.QUEUED.value, ShardState.LEASED.value])
        )
        .values(state=ShardState.CANCELLED.value, lease_expires_at=None)
    )
    mine = ShardAttempt.shard_id.in_(select(Shard.id).where(Shard.evaluation_id == evaluation_id))
    session.execute(
        update(ShardAttempt)
        .where(mine, ShardAttempt.outcome == "running")
        .values(outcome="cancelled", ended_at=database_time())
        .execution_options(synchronize_session=False)
    )


def queued_before(session: Session, shard: Shard) -> tuple[int, int, bool]:
    """Return how many other evaluations have a shard in the queue of the same split that is served before, how many
    runs those shards have, and whether some are of the same team."""
    queued = in_state(ShardState.QUEUED), Shard.split_id == shard.split_id
    before = or_(Shard.turn < shard.turn, and_(Shard.turn == shard.turn, Shard.id < shard.id))
    counted = select(
        func.count(Shard.evaluation_id.distinct()),
        func.coalesce(func.sum(Shard.n_runs), 0),
        func.count().filter(Shard.team_id == shard.team_id),
    ).where(*queued, before, Shard.evaluation_id != shard.evaluation_id)
    evaluations, runs, own = session.execute(counted).one()
    return evaluations, runs, bool(own)


def queue_again(session: Session, evaluation_id: str) -> int:
    """Put every shard that failed or was taken from the queue back into it, checks too. Return how many."""
    statement = (
        update(Shard)
        .where(
            Shard.evaluation_id == evaluation_id, Shard.state.in_([ShardState.FAILED.value, ShardState.CANCELLED.value])
        )
        .values(
            state=ShardState.QUEUED.value,
            worker=None,
            avoided_host=None,
            token_id=None,
            lease_expires_at=None,
            queued_at=database_time(),
            runs_done=0,
            wall_time_s=0.0,
            failed_attempts=0,
        )
    )
    return changed_rows(session, statement)


def max_unsuccessful_attempts(session: Session, evaluation_id: str) -> int:
    """Return the number of attempts that were lost, given back or failed, of the shard that has the most."""
    tries = (
        select(func.count().label("tries"))
        .select_from(ShardAttempt)
        .join(Shard, Shard.id == ShardAttempt.shard_id)
        .where(Shard.evaluation_id == evaluation_id, ShardAttempt.outcome.in_(["lost", "given-back", "failed"]))
        .group_by(Shard.id)
    ).subquery()
    return session.scalar(select(func.max(tries.c.tries))) or 0


def wall_time_used(session: Session, evaluation_id: str) -> float:
    """Return the participants' clock over all runs of the evaluation so far, seconds."""
    runs = Shard.evaluation_id == evaluation_id, Shard.kind == ShardKind.RUNS.value
    return float(session.scalars(select(func.coalesce(func.sum(Shard.wall_time_s), 0.0)).where(*runs)).one())


def get_shards(session: Session, evaluation_ids: Sequence[str]) -> Sequence[Shard]:
    return session.scalars(select(Shard).where(Shard.evaluation_id.in_(evaluation_ids)).order_by(Shard.id)).all()


def shards_of_runs(session: Session, evaluation_id: str) -> Sequence[Shard]:
    """Return the evaluation's shards of runs, in order."""
    runs = Shard.evaluation_id == evaluation_id, Shard.kind == ShardKind.RUNS.value
    return session.scalars(select(Shard).where(*runs).order_by(Shard.first_run)).all()


def get_attempts(session: Session, evaluation_ids: Sequence[str]) -> Sequence[tuple[ShardAttempt, Shard]]:
    rows = session.execute(
        select(ShardAttempt, Shard)
        .join(Shard, Shard.id == ShardAttempt.shard_id)
        .where(Shard.evaluation_id.in_(evaluation_ids))
        .order_by(ShardAttempt.id)
    )
    return list(rows)


def get_evaluations(session: Session, submission_ids: Sequence[str], *, visibility: str) -> Sequence[Evaluation]:
    """Return each submission's evaluations on the split of that visibility, oldest first."""
    return session.scalars(
        select(Evaluation)
        .join(Split, Split.id == Evaluation.split_id)
        .where(Evaluation.submission_id.in_(submission_ids), Split.visibility == visibility)
        .order_by(Evaluation.created_at, Evaluation.id)
    ).all()


def current_evaluation(session: Session, submission_id: str, visibility: str) -> Evaluation | None:
    """Return the submission's evaluation that counts on the split of that visibility."""
    known = get_evaluations(session, [submission_id], visibility=visibility)
    return next((evaluation for evaluation in reversed(known) if evaluation.is_current), None)


def asked_for_by_organisers(session: Session, submission_ids: Sequence[str]) -> set[str]:
    """Return which of these are evaluated on the public split because organisers asked for it, not by being sent."""
    statement = (
        select(Evaluation.submission_id)
        .join(Split, Split.id == Evaluation.split_id)
        .where(Evaluation.submission_id.in_(submission_ids), Evaluation.is_current.is_(True))
        .where(Evaluation.rejudging_id != "", Split.visibility == Visibility.PUBLIC.value)
    )
    return set(session.scalars(statement)) if submission_ids else set()


def has_run_on(session: Session, submission_id: str, split_id: str) -> bool:
    """Return whether code of the submission has run well on the split: its smoke run did, or it has a score there."""
    went_well = (Shard.kind == ShardKind.SMOKE.value) & (Shard.state == ShardState.DONE.value)
    statement = (
        select(Evaluation.id)
        .outerjoin(Shard, Shard.evaluation_id == Evaluation.id)
        .where(Evaluation.submission_id == submission_id, Evaluation.split_id == split_id)
        .where(went_well | (Evaluation.state == EvaluationState.SCORED.value))
        .limit(1)
    )
    return session.scalar(statement) is not None


def free_sample_failures(session: Session, team_id: str, *, since: datetime, before: datetime) -> set[str]:
    """Return the ids of the team's submissions, received in [since, before), which or a part of which failed through
    the team's fault and does not count."""
    mine = Submission.team_id == team_id, Submission.received_at >= since, Submission.received_at < before
    free = Submission.fault == Fault.PARTICIPANT.value, Submission.refunded.is_(True)
    return set(session.scalars(select(func.coalesce(Submission.parent_id, Submission.id)).where(*mine, *free)))


def host_faults(session: Session, submission_id: str, split_id: str) -> int:
    """Return how often the host failed at this submission on this split."""
    same = Evaluation.submission_id == submission_id, Evaluation.split_id == split_id
    statement = select(func.count()).select_from(Evaluation).where(*same, Evaluation.fault == Fault.HOST.value)
    return session.scalar(statement) or 0


def get_score(session: Session, evaluation: Evaluation, visibility: str) -> PublicScore | PrivateScore | None:
    """Return the score of an evaluation on the split of that visibility."""
    if visibility == Visibility.PUBLIC.value:
        return session.get(PublicScore, evaluation.id)
    return session.get(PrivateScore, evaluation.id)


def trace_of(session: Session, evaluation_id: str) -> dict[str, str]:
    """Return what its lines in the logs and its spans carry; empty if there is no such evaluation."""
    submission = select(Submission.request_id, Submission.id)
    row = session.execute(
        submission.join(Evaluation, Evaluation.submission_id == Submission.id).where(Evaluation.id == evaluation_id)
    ).one_or_none()
    return {} if row is None else {"request_id": row[0], "submission": row[1], "evaluation": evaluation_id}


def has_score(session: Session, evaluation_id: str) -> bool:
    return any(session.get(table, evaluation_id) is not None for table in (PublicScore, PrivateScore))


def claim_scoring(session: Session, evaluation_id: str, *, lease_s: float) -> int | None:
    """Lease an evaluation that waits for a score, or whose scorer was lost. Return the attempt; None if it does not."""
    attempt = Evaluation.scoring_attempt
    one = update(Evaluation).where(Evaluation.id == evaluation_id, _is_to_score())
    leased = one.values(scoring_until=database_time(lease_s), scoring_attempt=attempt + 1)
    return session.scalar(leased.returning(attempt))


def _is_to_score() -> ColumnElement[bool]:
    waits = (Evaluation.state == EvaluationState.SCORING.value) & Evaluation.scoring_until.is_(None)
    return waits | (Evaluation.scoring_until < database_time())


def hold_scoring(session: Session, evaluation_id: str, attempt: int, *, lease_s: float) -> bool:
    """Extend the lease of an evaluation's scoring. Return False if the attempt is no longer the current one."""
    held = update(Evaluation).where(_is_scored_by(evaluation_id, attempt))
    return changes_one_row(session, held.values(scoring_until=database_time(lease_s)))


def end_scoring(session: Session, evaluation_id: str, attempt: int, *conditions: ColumnElement[bool]) -> bool:
    """End the lease of an evaluation's scoring. Return False if the attempt is no longer the current one."""
    held = update(Evaluation).where(_is_scored_by(evaluation_id, attempt), *conditions)
    return changes_one_row(session, held.values(scoring_until=None))


def _is_scored_by(evaluation_id: str, attempt: int) -> ColumnElement[bool]:
    is_held = Evaluation.scoring_until.is_not(None)
    return (Evaluation.id == evaluation_id) & (Evaluation.scoring_attempt == attempt) & is_held


def shorten_scoring(session: Session, *, latest: datetime) -> None:
    """Shorten the leases that end later: they were given before the database's clock was set back."""
    session.execute(update(Evaluation).where(Evaluation.scoring_until > latest).values(scoring_until=latest))


def unscored(session: Session, *, since_before: datetime, limit: int, held: bool = False) -> Sequence[str]:
    """Return some evaluations that wait for a score, the oldest first; held: also those that a worker scores."""
    unfinished = (Evaluation.state == EvaluationState.SCORING.value) | Evaluation.scoring_until.is_not(None)
    return session.scalars(
        select(Evaluation.id)
        .where(unfinished if held else _is_to_score(), Evaluation.finished_at < since_before)
        .order_by(Evaluation.finished_at, Evaluation.id)
        .limit(limit)
    ).all()


def untrusted_token(session: Session, shard_id: int) -> str | None:
    """Return the token of the untrusted worker that holds or ended the shard, None where that is a trusted one."""
    return session.scalar(select(Shard.token_id).where(Shard.id == shard_id))


def attempt_row(session: Session, shard_id: int, attempt: int) -> ShardAttempt | None:
    return session.scalar(
        select(ShardAttempt).where(ShardAttempt.shard_id == shard_id, ShardAttempt.attempt == attempt)
    )
