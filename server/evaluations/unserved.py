"""Queued work without a suitable worker: which it is, and which worker could do it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from server import audit
from server.audit import EventFilter
from server.datetime_format import in_words
from server.db import clock
from server.evaluations import evaluation_repository
from server.evaluations.queue_repository import in_state
from server.models.competition import Competition, Split
from server.models.evaluation import Shard, ShardAttempt, ShardKind, ShardState
from server.models.submission import ENDED, Submission
from server.models.worker import Worker, WorkerState, WorkerToken, host_of
from server.notifications import dispatch, notification_repository

SEEN_WITHIN = timedelta(seconds=60)  # a worker reports every 20 s, unless it holds a lease
LEAVING_STATES = (WorkerState.DRAINING.value, WorkerState.STOPPED.value)  # as workers that are restarted
MAIL_AFTER, MAIL_AGAIN_AFTER = timedelta(minutes=10), timedelta(days=1)
NOTIFICATION = "competition.work_waits"
TAKING_STATES = (WorkerState.ACTIVE.value, WorkerState.COOLING.value)
NO_WORKER = "no worker has been heard of in the last minute: start one with `lethe worker`"
NO_TAKING_WORKER = "no worker that was heard of in the last minute takes new work ({states}): see `lethe workers`"
TRUSTED_ONLY = (
    "these runs are for trusted workers, and only workers with a token are there: start one with `lethe worker` on the "
    "server's side, or let an administrator trust a token"
)
REFUSED = "no worker that is there may do it: {reason}"
PACE_OF = timedelta(minutes=15)
IN_QUEUE = "other submissions are served first"
OWN_FIRST = "an earlier submission of your team is served first"
NEXT = "next in the queue"


@dataclass(frozen=True)
class Unserved:
    """Shards of one split that no worker takes. reason: why, and which worker could."""

    split_id: str
    slug: str
    competition_id: str
    shards: int
    since: datetime
    reason: str


@dataclass(frozen=True)
class _Group:
    split: Split
    competition: Competition
    trusted_only: bool
    shards: int
    since: datetime


def find_unserved(
    session: Session,
    *,
    split_id: str | None = None,
    trusted_only: bool | None = None,
    seen_within: timedelta = SEEN_WITHIN,
) -> list[Unserved]:
    """Return what of the queue, or one split, no worker seen within `seen_within` can do."""
    groups = [group for group in _waiting(session, split_id) if trusted_only in (None, group.trusted_only)]
    if not groups:
        return []
    workers = _alive(session, seen_within)
    unserved = []
    for group in groups:
        leaving = seen_within > SEEN_WITHIN
        why_not = [_why_not(worker, token, group, leaving_counts=leaving) for worker, token in workers]
        if all(why_not):
            reason = _in_words([each for each in why_not if each], workers)
            unserved.append(
                Unserved(
                    group.split.id, group.competition.slug, group.competition.id, group.shards, group.since, reason
                )
            )
    return unserved


def tell_organisers(session: Session) -> int:
    """Notify organisers, once a day, of work that no worker took for ten minutes. Return the number of competitions."""
    at, told = clock(session), set()
    for each in find_unserved(session, seen_within=MAIL_AFTER):
        competition = session.get_one(Competition, each.competition_id)
        competition = session.get_one(Competition, competition.root_id)
        lately = EventFilter(competition_id=competition.id, action=NOTIFICATION, since=at - MAIL_AGAIN_AFTER)
        if each.since > at - MAIL_AFTER or competition.id in told or audit.events(session, lately, limit=1):
            continue
        told.add(competition.id)
        audit.record(session, None, NOTIFICATION, competition, data={"found": each.reason})
        text = (
            f"{each.shards} parts of evaluations of {competition.title} wait since {in_words(each.since)}, and nobody "
            f"can do them: {each.reason}. They run by themselves as soon as somebody can"
        )
        path = f"/organise/{competition.slug}"
        organisers = notification_repository.addresses_of_organisers(session, competition.id)
        dispatch.write(session, competition, organisers, subject="work that nobody can do", text=text, path=path)
    return len(told)


def host_to_avoid(session: Session, split_id: str, *, worker: str, trusted_only: bool) -> str | None:
    """Return the host of a worker that failed at a shard, if a worker of another host could take the shard now."""
    of = select(Split, Competition).join(Competition, Competition.id == Split.competition_id)
    split, competition = session.execute(of.where(Split.id == split_id)).one()
    group = _Group(split, competition, trusted_only, shards=1, since=clock(session))
    host = host_of(worker)
    others = (each for each in _alive(session, SEEN_WITHIN) if host_of(each[0].name) != host)
    takes = any(other.state == WorkerState.ACTIVE and not _why_not(other, token, group) for other, token in others)
    return host if host and takes else None


def _waiting(session: Session, split_id: str | None) -> list[_Group]:
    groups = (
        select(Shard.split_id, Shard.trusted_only, func.count(), func.min(Shard.queued_at))
        .where(in_state(ShardState.QUEUED))
        .group_by(Shard.split_id, Shard.trusted_only)
    )
    if split_id is not None:
        groups = groups.where(Shard.split_id == split_id)
    rows = session.execute(groups).all()
    of = select(Split, Competition).join(Competition, Competition.id == Split.competition_id)
    splits = {row[0].id: row for row in session.execute(of.where(Split.id.in_({row[0] for row in rows})))}
    return [_Group(*splits[row[0]], row[1], row[2], row[3]) for row in rows if row[0] in splits]


def _alive(session: Session, seen_within: timedelta) -> Sequence[tuple[Worker, WorkerToken | None]]:
    """Return the workers that reported lately or are at work, each with its token."""
    at_work = select(Shard.worker).where(in_state(ShardState.LEASED))
    alive = (Worker.seen_at > clock(session) - seen_within) | Worker.name.in_(at_work)
    workers = select(Worker, WorkerToken).outerjoin(WorkerToken, WorkerToken.id == Worker.token_id).where(alive)
    if seen_within <= SEEN_WITHIN:
        workers = workers.where(Worker.state != WorkerState.STOPPED.value)
    return [(row[0], row[1]) for row in session.execute(workers)]


def _why_not(worker: Worker, token: WorkerToken | None, group: _Group, *, leaving_counts: bool = False) -> str:
    """Return why a worker cannot do these shards; empty if it can."""
    if worker.state not in TAKING_STATES and not (leaving_counts and worker.state in LEAVING_STATES):
        return worker.state
    if token is not None:
        if token.revoked_at is not None or token.quarantined_at is not None:
            return f"the token {token.name} is {'revoked' if token.revoked_at else 'quarantined'}"
        if token.competition_id not in (group.competition.id, group.competition.parent_id):
            return "of another competition's organisers"
        if token.public_only and group.split.visibility != Visibility.PUBLIC.value:
            return f"the token {token.name} is for the public split only"
        if group.trusted_only and not token.trusted:
            return TRUSTED_ONLY
    return str(worker.refusals.get(group.split.id, ""))


def _in_words(why_not: Sequence[str], workers: Sequence[tuple[Worker, WorkerToken | None]]) -> str:
    if not workers:
        return NO_WORKER
    if all(worker.state not in TAKING_STATES for worker, _ in workers):
        return NO_TAKING_WORKER.format(states=", ".join(sorted({worker.state for worker, _ in workers})))
    if TRUSTED_ONLY in why_not:
        return TRUSTED_ONLY
    return REFUSED.format(reason=Counter(each for each in why_not if each not in set(WorkerState)).most_common(1)[0][0])


@dataclass(frozen=True)
class Wait:
    """Why nothing of a submission runs yet. seconds: by the pace of the last minutes."""

    reason: Annotated[str, Field(examples=["other submissions are served first"])]
    ahead: Annotated[int, Field(description="submissions that are served before it, about")]
    seconds: Annotated[float | None, Field(description="until it begins, about; null where nothing tells")]


def find_wait(session: Session, submission: Submission) -> Wait | None:
    """Return why nothing of the submission runs; None while something does, or it is not in the queue."""
    shard, has_begun = _first_shard(session, submission)
    if shard is None:
        return None
    unserved = find_unserved(session, split_id=shard.split_id, trusted_only=shard.trusted_only)
    if has_begun and not unserved:
        return None
    ahead, runs, own = evaluation_repository.queued_before(session, shard)
    pace = _runs_per_s(session, shard.split_id)
    seconds = runs / pace if pace else None
    if unserved:
        return Wait(unserved[0].reason, ahead, None)
    reason = OWN_FIRST if own else IN_QUEUE if ahead else NEXT
    return Wait(reason, ahead, seconds)


def _first_shard(session: Session, submission: Submission) -> tuple[Shard | None, bool]:
    """Return the shard that is served next, None while one is served; and whether a run has begun."""
    if submission.stage in ENDED:
        return None, False
    current = evaluation_repository.current_evaluation(session, submission.id, Visibility.PUBLIC.value)
    shards = evaluation_repository.get_shards(session, [current.id]) if current else []
    if any(shard.state == ShardState.LEASED.value for shard in shards if shard.kind != ShardKind.SMOKE.value):
        return None, True
    has_begun = any(s.state != ShardState.QUEUED.value for s in shards if s.kind == ShardKind.RUNS.value)
    queued = [shard for shard in shards if shard.state == ShardState.QUEUED.value]
    return min(queued, key=lambda shard: (shard.turn, shard.id), default=None), has_begun


def _runs_per_s(session: Session, split_id: str) -> float:
    done = (
        select(func.sum(Shard.n_runs))
        .join(ShardAttempt, ShardAttempt.shard_id == Shard.id)
        .where(
            ShardAttempt.outcome == "done", ShardAttempt.ended_at > clock(session) - PACE_OF, Shard.split_id == split_id
        )
    )
    return (session.scalar(done) or 0) / PACE_OF.total_seconds()
