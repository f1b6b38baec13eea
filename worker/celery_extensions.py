"""What Celery and kombu do otherwise in a worker of this project, and why. A test shows what breaks without each.

`install` comes before the application is made.
"""

from typing import Any

import structlog
from celery import Celery, bootsteps
from celery.beat import PersistentScheduler
from celery.utils.nodenames import worker_direct
from kombu import Exchange, Queue
from kombu.transport import redis
from kombu.transport.virtual import base

from server.queue import BROKER_FAILURES, CONTROL_QUEUE, max_waiting, waiting

log = structlog.get_logger()
DIRECT_QUEUE_TTL_S = 3600  # after which what a worker told itself is forgotten: it is gone, and its name with it


class ForgettingQoS(redis.QoS):
    """Forgets a message that is done, also where Redis was silent at its end.

    kombu forgets it once Redis has heard of its end, and asks for no further one meanwhile: the worker lived, answered
    pings, and took nothing more. Redis brings the message again after the visibility timeout: it only wakes a worker.

    Test: test_app.py::test_message_whose_end_redis_did_not_hear_of_holds_up_no_other.
    """

    def ack(self, delivery_tag: str) -> None:
        try:
            super().ack(delivery_tag)
        except BaseException:
            base.QoS.ack(self, delivery_tag)
            raise


def install() -> None:
    """Use it for every connection of this process to Redis."""
    redis.Channel.QoS = ForgettingQoS


class Scheduler(PersistentScheduler):
    """Sends no sweep where sweeps wait: without a worker that takes them, Redis would hold every one.

    A message's `expires` does not help: a worker drops it, Redis does not.
    Test: test_app.py::test_scheduler_sends_no_more_sweeps_than_may_wait.
    """

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **options: Any) -> Any:
        """Send the entry's message unless enough wait. What the broker refuses is sent at the next turn."""
        try:
            is_enough = producer is not None and waiting(producer.channel, CONTROL_QUEUE) >= max_waiting(entry.task)
        except BROKER_FAILURES:
            is_enough = False  # sending it meets the same, and is reported
        if is_enough:
            if advance:
                self.reserve(entry)
            return None
        return super().apply_async(entry, producer=producer, advance=advance, **options)


class Pulse(bootsteps.StartStopStep):
    """Every sweep interval, puts a hint and a sweep into this worker's own queue if that is empty.

    So work goes on with an emptied Redis and without a scheduler. It runs in the event loop of the worker's main
    process, which never computes and never blocks on a shard.

    Test: tests/faults/test_services.py::test_redis_emptied_without_a_scheduler_loses_no_work.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, parent: Any, **options: Any) -> None:
        super().__init__(parent, **options)
        self._timer: Any = None

    def start(self, parent: Any) -> None:
        _, every_s = parent.app.conf.pulse
        self._timer = parent.timer.call_repeatedly(every_s, beat, (parent.app, parent.hostname))

    def stop(self, parent: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def beat(app: Celery, hostname: str) -> None:
    """Send this worker a hint and a sweep, unless it has not come to the last ones yet."""
    queue = worker_direct(hostname).name
    try:
        with app.producer_or_acquire() as producer:
            if waiting(producer.channel, queue) == 0:
                # To the queue itself: an exchange is known to Redis alone, which may have forgotten it.
                itself = Queue(queue, Exchange(""), routing_key=queue)
                for task in app.conf.pulse[0]:
                    app.send_task(task, producer=producer, queue=itself, declare=[])  # type: ignore[arg-type]  # the types know only names
                producer.channel.client.expire(queue, DIRECT_QUEUE_TTL_S)
    except BROKER_FAILURES as error:
        log.warning("no pulse", error=str(error))
