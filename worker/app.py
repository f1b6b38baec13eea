"""The Celery application that workers run: `celery -A worker.app worker`.

Messages only save time. Each worker also looks for work and for what was lost by itself, every sweep interval, so
neither Redis' memory nor a single scheduler process is needed for anything to go on.
"""

import os
from logging import WARNING, getLogger
from typing import Any

import structlog
from celery import Celery, bootsteps
from celery.schedules import schedule
from celery.signals import celeryd_init, setup_logging, worker_shutting_down
from celery.utils.nodenames import worker_direct
from kombu import Exchange, Queue
from kombu.exceptions import OperationalError

from server import logging
from server.config import Settings, get_settings
from server.queue import CONTROL_QUEUE, EVALUATE_SHARD, PREPARE_QUEUE, SWEEP, configure, shard_queue
from worker import drain

log = structlog.get_logger()
settings = get_settings()
METRICS_FOLDER = settings.scratch / "metrics"
if settings.worker_metrics_port:
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(METRICS_FOLDER)  # read when prometheus_client is imported

from worker import metrics  # noqa: E402


def shard_queues_taken(settings: Settings) -> list[str]:
    """Return the queues of hints that this worker takes: a hint at what it does not serve would be lost with it."""
    served = settings.competitions_served or ()
    own = [shard_queue(settings.worker_device, slug) for slug in served if slug in settings.own_queues]
    return own if own and len(own) == len(served) else [shard_queue(settings.worker_device), *own]


QUEUES = [CONTROL_QUEUE, *shard_queues_taken(settings), *([PREPARE_QUEUE] if settings.worker_prepares else [])]

app = configure(Celery("lethe", include=["worker.tasks"]), redis_url=settings.resolved_redis_url)
app.conf.update(
    worker_concurrency=settings.worker_concurrency,
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    task_queues=[Queue(name, Exchange(name), routing_key=name) for name in QUEUES],
    worker_direct=True,
    beat_schedule={"sweep": {"task": SWEEP, "schedule": schedule(settings.sweep_interval_s)}},
    beat_schedule_filename=str(settings.home.absolute() / "beat-schedule"),
)


class Pulse(bootsteps.StartStopStep):
    """Every sweep interval, puts a hint and a sweep into this worker's own queue if that is empty.

    It runs in the event loop of the worker's main process, which never computes and never blocks on a shard.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        self._timer: Any = None

    def start(self, parent: Any) -> None:
        self._timer = parent.timer.call_repeatedly(settings.sweep_interval_s, beat, (parent.hostname,))

    def stop(self, parent: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def beat(hostname: str) -> None:
    """Send this worker a hint and a sweep, unless it has not come to the last ones yet."""
    queue = worker_direct(hostname)
    try:
        with app.connection_for_write() as connection, connection.channel() as channel:
            waiting: Any = queue(channel)
            if waiting.queue_declare().message_count == 0:
                for task in (EVALUATE_SHARD, SWEEP):
                    app.send_task(
                        task, connection=connection, exchange=queue.exchange.name, routing_key=queue.routing_key
                    )
    except (OperationalError, OSError) as error:
        log.warning("no pulse", error=str(error))


app.steps["consumer"].add(Pulse)


@setup_logging.connect
def _log_as_the_server_does(**_: Any) -> None:
    logging.configure(as_json=settings.log_json)
    for name in ("celery.app.trace", "celery.worker.strategy"):  # a line for each hint tells nothing
        getLogger(name).setLevel(WARNING)


@celeryd_init.connect
def _count(**_: Any) -> None:
    if settings.worker_metrics_port:
        metrics.fresh_folder(METRICS_FOLDER)
        metrics.serve(settings.worker_metrics_port, METRICS_FOLDER)


@worker_shutting_down.connect
def _drain(**_: Any) -> None:
    drain.begin(give_back_after_s=settings.worker_drain_s)
