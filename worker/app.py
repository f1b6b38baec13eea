"""The Celery application that workers run: `celery -A worker.app worker`.

Messages only save time. Each worker also looks for work and for what was lost by itself, every sweep interval, so
neither Redis' memory nor a single scheduler process is needed for anything to go on.
"""

import signal
from collections.abc import Sequence
from logging import WARNING, getLogger
from typing import Any

from celery import Celery
from celery.schedules import schedule
from celery.signals import beat_embedded_init, celeryd_init, setup_logging, worker_shutting_down
from celery.utils.nodenames import worker_direct
from kombu import Exchange, Queue

from server import logging
from server.config import Settings, get_settings
from server.embedded.redis import die_with_parent
from server.queue import (
    CONTROL_QUEUE,
    EVALUATE_SHARD,
    MESSAGES_QUEUE,
    METRICS_QUEUE,
    PREPARE_QUEUE,
    SWEEP,
    configure,
    shard_queue,
)
from worker import celery_extensions
from worker.host import graceful_shutdown, metrics_folder

settings = get_settings()
METRICS_FOLDER = settings.scratch / "metrics"
if settings.worker_metrics_port:
    metrics_folder.share(METRICS_FOLDER)

from worker.host import prometheus  # noqa: E402


def consumed_shard_queues(settings: Settings) -> list[str]:
    """Return the queues of hints that this worker takes: a hint at what it does not serve would be lost with it."""
    served = settings.competitions_served or ()
    own = [shard_queue(settings.worker_device, slug) for slug in served if slug in settings.own_queues]
    return own if own and len(own) == len(served) else [shard_queue(settings.worker_device), *own]


def consumed_queues(settings: Settings, own: Sequence[Queue] = ()) -> list[Queue]:
    """Return the queues that this worker consumes, each before those behind it: scores, preparations, then shards.

    own: the worker's direct queue, which Celery would add behind the others. In turn, a worker whose own sweeps take
    longer than their interval would come to no score. A preparation that is not its turn ends at once
    (server/competitions/preparation_turns.py), so it keeps no shard waiting; metrics come after every shard.
    """
    takes = settings.worker_takes
    if takes == "messages":
        return [*own, _queue(MESSAGES_QUEUE)]
    first = [CONTROL_QUEUE, *([PREPARE_QUEUE] if settings.worker_prepares else [])]
    then = [*consumed_shard_queues(settings), *([MESSAGES_QUEUE] if takes == "everything" else []), METRICS_QUEUE]
    return [*map(_queue, first), *own, *map(_queue, then)]


def _queue(name: str) -> Queue:
    return Queue(name, Exchange(name), routing_key=name)


PULSE = (SWEEP,) if settings.worker_takes == "messages" else (EVALUATE_SHARD, SWEEP)

# What a worker loads. Only what computes takes seconds to import, and memory.
TASKS = ("worker.server_tasks",) if settings.worker_takes == "messages" else ("worker.server_tasks", "worker.tasks")

celery_extensions.install()
app = configure(Celery("lethe", include=TASKS), redis_url=settings.resolved_redis_url)
app.conf.update(
    worker_concurrency=settings.worker_concurrency,
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    task_queues=consumed_queues(settings),
    beat_schedule={
        "sweep": {"task": SWEEP, "schedule": schedule(settings.sweep_interval_s), "kwargs": {"by_beat": True}}
    },
    beat_scheduler="worker.celery_extensions:Scheduler",
    beat_schedule_filename=str(settings.home.absolute() / "beat-schedule"),
)
app.conf.broker_transport_options |= {"queue_order_strategy": "priority"}  # in the order of task_queues
app.conf.pulse = PULSE, settings.sweep_interval_s
app.steps["consumer"].add(celery_extensions.Pulse)


@setup_logging.connect
def _log_as_the_server_does(**_: Any) -> None:
    logging.configure(as_json=settings.log_json)
    for name in ("celery.app.trace", "celery.worker.strategy"):  # a line for each hint tells nothing
        getLogger(name).setLevel(WARNING)


END_WITH_PARENT = die_with_parent(signal.SIGKILL)


@beat_embedded_init.connect
def _end_with_the_worker(**_: Any) -> None:
    """End a scheduler started by a worker (`--beat`) with its worker, even if the kernel killed that."""
    END_WITH_PARENT()


@celeryd_init.connect
def _begin(sender: str, conf: Any, **_: Any) -> None:
    conf.task_queues = consumed_queues(settings, [worker_direct(sender)])
    if settings.worker_metrics_port:
        metrics_folder.forget_others(METRICS_FOLDER)
        prometheus.serve(settings.worker_metrics_port, METRICS_FOLDER)


@worker_shutting_down.connect
def _drain(**_: Any) -> None:
    graceful_shutdown.begin(give_back_after_s=settings.worker_drain_s)
