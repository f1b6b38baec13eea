"""Messages to the workers, and the order of all work. A message only wakes a worker: the database says what there is
to do.

Messages go out after the transaction that made the work has committed, and a lost one costs only time, since
the sweeper finds work that nobody was told of; but not a board whose ties are to be grouped: that is asked for again
with its next score. So none is sent where enough wait already: a queue that holds messages
has no idle worker, and whatever is queued, Redis holds a few of them.
"""

import time
from collections.abc import Collection
from datetime import timedelta
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import structlog
from celery import Celery
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError
from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction

from server.config import get_settings

ROUNDS = 100_000_000  # of one class


class Turn(IntEnum):
    """Classes of shards, the first served first."""

    SMOKE = 0  # takes a second and tells the participant the most; one of a team at a time
    CHECK = 1  # the score of a submission whose runs are done waits for it
    BEGUN = 2  # runs of an evaluation of which a worker has run some: it ends before another begins
    ORGANISER = 3  # what an organiser asks for by hand
    NEW = 4
    REJUDGING = 5  # scoring a set again has no hurry
    BASELINE = 6  # nobody waits for a reference line; it takes what others leave

    @property
    def first(self) -> int:
        """The turn of its first round."""
        return self.value * ROUNDS

    @property
    def has_rounds(self) -> bool:
        return self >= Turn.NEW


log = structlog.get_logger()

EVALUATE_SHARD = "lethe.evaluate_shard"
SCORE_EVALUATION = "lethe.score_evaluation"
COMPUTE_METRICS = "lethe.compute_metrics"
PREPARE_SPLIT = "lethe.prepare_split"
PREPARE_SHARD = "lethe.prepare_shard"
SWEEP = "lethe.sweep"
GROUP_TIES = "lethe.group_ties"
SEND_MAIL = "lethe.send_mail"
DELIVER_WEBHOOKS = "lethe.deliver_webhooks"

CONTROL_QUEUE = "lethe.control"  # scores and sweeps: short, and taken before any shard
MESSAGES_QUEUE = "lethe.messages"  # to people: mail and webhooks, for workers that reach the internet
PREPARE_QUEUE = "lethe.prepare"
METRICS_QUEUE = "lethe.metrics"  # metrics beside the score: after every shard
RESENT_AFTER = timedelta(seconds=10)  # that work waited: its message may have been lost
MAX_WAKE_UPS = 8  # for one step, and waiting in one queue: whoever takes one and finds work tells the next
MAX_WAITING = 64  # in one queue, of messages about one thing each; the sweeper sends what was held back

OWN_QUEUES = {
    PREPARE_SPLIT: PREPARE_QUEUE,
    PREPARE_SHARD: PREPARE_QUEUE,
    SEND_MAIL: MESSAGES_QUEUE,
    DELIVER_WEBHOOKS: MESSAGES_QUEUE,
    COMPUTE_METRICS: METRICS_QUEUE,
}
WAKE_UPS = frozenset({EVALUATE_SHARD, PREPARE_SHARD, SWEEP})  # each like the others: they name no work

# What a broker raises that is away, or takes nothing more: a full Redis answers with an error of its own.
BROKER_FAILURES = (OperationalError, OSError, RedisError)

_PENDING = "lethe_messages"

BACKOFF_FACTOR = (
    2.0  # times as long as its failure took, a broker is asked nothing: requests wait a third of the time at most
)
SILENT_S = 2.0  # after which a request waits no longer for a broker
REFUSED_S = 0.2  # until a request asks a broker again that is away


class RoutingKey(NamedTuple):
    """Who is told of a shard: workers of the kind of device that its split needs, and of its competition."""

    device: str | None
    competition: str


def shard_queue(device: str | None, competition: str | None = None) -> str:
    """Return the queue of wake-up messages for one kind of device, cpu or cuda; of one competition if it is named."""
    return f"lethe.{device or 'cpu'}" + (f".{competition}" if competition else "")


def shard_queues(routing_key: RoutingKey, own_queues: Collection[str]) -> list[str]:
    """Return the queues that hear of a shard: its device's, and its competition's if that has one of its own."""
    queues = [shard_queue(routing_key.device)]
    if routing_key.competition in own_queues:
        queues.append(shard_queue(routing_key.device, routing_key.competition))
    return queues


def configure(app: Celery, *, redis_url: str) -> Celery:
    """Give `app` the settings that both ends must share."""
    app.conf.update(
        broker_url=redis_url,
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        task_acks_late=True,
        task_reject_on_worker_lost=False,  # the sweeper re-sends; a poisoned message must not circle
        worker_prefetch_multiplier=1,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_channel_error_retry=True,  # a full Redis refuses what a worker writes at its start: it tries again
        broker_connection_max_retries=None,  # a worker outlives any outage; Celery's own would give up within the hour
        broker_transport_options={"visibility_timeout": 12 * 3600, "socket_timeout": 5, "socket_connect_timeout": 5},
        task_default_queue=CONTROL_QUEUE,
        task_create_missing_queues=True,
        task_routes={task: {"queue": queue} for task, queue in OWN_QUEUES.items()},
        task_publish_retry=False,
    )
    return app


class SendingEnd(Celery):
    """The sending end. requests_wait: whether requests wait for it. cooldown_until: of a broker that failed."""

    requests_wait = False
    cooldown_until = 0.0

    def shorten_request_timeouts(self) -> None:
        """Ask a broker that refuses once again soon, and wait little for a silent one: for the web server's start."""
        self.requests_wait = True
        self.conf.broker_transport_options |= {
            "max_retries": 1,
            "interval_start": REFUSED_S,
            "socket_timeout": SILENT_S,
            "socket_connect_timeout": SILENT_S,
        }


@lru_cache
def client() -> SendingEnd:
    """Return the sending end."""
    app = SendingEnd("lethe")
    configure(app, redis_url=get_settings().resolved_redis_url)
    return app


def send_after_commit(session: Session, task: str, *args: Any, times: int = 1, to: RoutingKey | None = None) -> None:
    """Send `task` once the session's outermost transaction has committed. to: for shards, who may serve them."""
    pending = session.info.setdefault(_PENDING, [])
    pending.extend((task, args, to) for _ in range(min(times, MAX_WAKE_UPS)))


def send(task: str, *args: Any, to: RoutingKey | None = None, expires_s: float | None = None) -> bool:
    """Send `task` now. Return whether the broker took it; one that failed is asked nothing for a while."""
    began = time.monotonic()
    if began < client().cooldown_until:
        return False
    try:
        with client().producer_or_acquire() as producer:
            for queue in _queues(task, to):
                if waiting(producer.channel, queue) < max_waiting(task):
                    client().send_task(task, args=args, expires=expires_s, queue=queue, producer=producer)
    except BROKER_FAILURES as error:
        log.warning("message not sent", task=task, error=str(error))
        if client().requests_wait:
            failed = time.monotonic()
            client().cooldown_until = failed + BACKOFF_FACTOR * (failed - began)
        return False
    return True


def waiting(channel: Any, queue: str) -> int:
    """Return how many messages wait in a queue."""
    return int(channel.queue_declare(queue, auto_delete=False).message_count)


def max_waiting(task: str) -> int:
    """Return how many messages may wait in a queue before one more of `task` is held back."""
    return MAX_WAKE_UPS if task in WAKE_UPS else MAX_WAITING


def _queues(task: str, to: RoutingKey | None) -> list[str]:
    if to is not None:
        return shard_queues(to, get_settings().own_queues)
    return [OWN_QUEUES.get(task, CONTROL_QUEUE)]


@event.listens_for(Session, "after_commit")
def _send_pending(session: Session) -> None:
    if session.in_nested_transaction():
        return  # a savepoint was released; nothing is certain yet
    for task, args, to in session.info.pop(_PENDING, []):
        if not send(task, *args, to=to):
            break  # the broker is away: do not wait for it once per message


@event.listens_for(Session, "after_soft_rollback")
def _forget_pending(session: Session, previous: SessionTransaction) -> None:
    if not previous.nested:
        session.info.pop(_PENDING, None)
