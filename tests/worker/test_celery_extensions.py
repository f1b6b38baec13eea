"""A worker goes on after Redis was silent at the end of a task; sweeps do not add up in a queue nobody reads."""

import os
import signal
from pathlib import Path

import pytest
from celery import Celery
from kombu import Connection, Consumer, Queue

from server import queue
from server.embedded.redis import start_redis
from worker import celery_extensions


def test_message_whose_end_redis_did_not_hear_of_holds_up_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr("kombu.transport.redis.Channel.QoS", None)  # put back afterwards
    celery_extensions.install()
    taken: list[str] = []
    options = {"socket_timeout": 0.5, "socket_connect_timeout": 0.5}
    with start_redis(tmp_path) as server, Connection(server.broker_url, transport_options=options) as connection:
        hints = Queue("hints")
        with connection.Producer() as producer:
            for word in ("first", "second"):
                producer.publish(word, routing_key=hints.name, declare=[hints])
        with Consumer(connection, [hints], prefetch_count=1) as consumer:

            def take(body: str, message: object) -> None:
                taken.append(body)
                if body == "second":
                    return
                os.kill(server.pid, signal.SIGSTOP)
                try:
                    with pytest.raises(connection.connection_errors):
                        message.ack()  # type: ignore[attr-defined]
                finally:
                    os.kill(server.pid, signal.SIGCONT)

            consumer.register_callback(take)
            while taken != ["first", "second"]:
                connection.drain_events(timeout=10)


def test_scheduler_sends_no_more_sweeps_than_may_wait(tmp_path: Path) -> None:
    with start_redis(tmp_path) as server:
        app = queue.configure(Celery("scheduler", set_as_current=False), redis_url=server.broker_url)
        scheduler = celery_extensions.Scheduler(app, schedule_filename=str(tmp_path / "schedule"), lazy=True)
        entry = scheduler.Entry(name="sweep", task=queue.SWEEP, schedule=1.0, app=app)
        with app.producer_or_acquire() as producer:
            for _ in range(2 * queue.MAX_WAKE_UPS):
                scheduler.apply_async(entry, producer=producer, advance=False)
            assert queue.waiting(producer.channel, queue.CONTROL_QUEUE) == queue.MAX_WAKE_UPS
        app.close()
