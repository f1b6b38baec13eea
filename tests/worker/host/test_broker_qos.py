"""A worker goes on after Redis was silent at the end of a task."""

import os
import signal
from pathlib import Path

import pytest
from kombu import Connection, Consumer, Queue

from server.embedded.redis import start_redis
from worker.host import broker_qos


def test_message_whose_end_redis_did_not_hear_of_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kombu.transport.redis.Channel.QoS", None)  # put back afterwards
    broker_qos.install()
    taken: list[str] = []
    options = {"socket_timeout": 0.5, "socket_connect_timeout": 0.5}
    with start_redis(tmp_path) as server, Connection(server.broker_url, transport_options=options) as connection:
        queue = Queue("hints")
        with connection.Producer() as producer:
            for word in ("first", "second"):
                producer.publish(word, routing_key=queue.name, declare=[queue])
        with Consumer(connection, [queue], prefetch_count=1) as consumer:

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
