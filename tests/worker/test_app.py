"""The worker's queues: its own kind of device and what every worker takes; Redis that was silent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis
from celery import Celery
from kombu import Connection, Consumer, Queue

from server import queue
from server.embedded.redis import RedisProcess, start_redis
from server.queue import RoutingKey, shard_queues
from tests.faults.cluster import wait_until
from tests.support.forked_children import run_code
from worker import celery_extensions


def queues(**environment: str) -> list[tuple[str, str, str]]:
    program = (
        "from worker.app import app; [print(q.name, q.exchange.name, q.routing_key) for q in app.amqp.queues.values()]"
    )
    found = run_code(program, **environment)
    return [tuple(line.split()) for line in found.splitlines()]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("arguments", "takes", "tasks"),
    [(["beat"], "everything", []), ([], "messages", ["lethe.deliver_webhooks", "lethe.send_mail", "lethe.sweep"])],
)
def test_what_does_not_compute_loads_no_torch(arguments: list[str], takes: str, tasks: list[str]) -> None:
    program = (
        "import sys; from worker import __main__ as program; from worker.app import app\n"
        "app.start = lambda words: None\n"
        f"program.main({arguments}); app.loader.import_default_modules(); assert 'torch' not in sys.modules\n"
        "print(*sorted(name for name in app.tasks if name.startswith('lethe.')))"
    )
    environment = os.environ | {"LETHE_WORKER_TAKES": takes}
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert found.stdout.split() == tasks


OWN_QUEUES = {
    "LETHE_QUEUE_COMPETITIONS": "faces,digits",
    "LETHE_WORKER_PREPARES": "false",
    "LETHE_WORKER_TAKES": "shards",
}


@pytest.mark.parametrize(
    ("environment", "taken"),
    [
        ({}, "control prepare cpu messages metrics"),
        ({"LETHE_WORKER_DEVICE": "cuda", "LETHE_WORKER_PREPARES": "false"}, "control cuda messages metrics"),
        ({"LETHE_WORKER_TAKES": "shards"}, "control prepare cpu metrics"),  # it has no way out
        ({"LETHE_WORKER_TAKES": "messages"}, "messages"),
        (OWN_QUEUES | {"LETHE_WORKER_COMPETITIONS": "digits"}, "control cpu.digits metrics"),
        (OWN_QUEUES | {"LETHE_WORKER_COMPETITIONS": "digits,mnist"}, "control cpu cpu.digits metrics"),
        (OWN_QUEUES | {"LETHE_WORKER_COMPETITIONS": ""}, "control cpu metrics"),
    ],
)
def test_worker_reads_the_queues_of_its_kind_and_competitions(environment, taken):
    found = queues(**environment)
    assert [name for name, _, _ in found] == [f"lethe.{name}" for name in taken.split()]
    assert len({(exchange, key) for _, exchange, key in found}) == len(found), "no message reaches two"


def test_shard_is_told_of_in_its_competitions_queue_as_well() -> None:
    assert shard_queues(RoutingKey("cuda", "digits"), {"digits"}) == ["lethe.cuda", "lethe.cuda.digits"]
    assert shard_queues(RoutingKey(None, "faces"), {"digits"}) == ["lethe.cpu"]


def test_worker_takes_scores_then_preparations_then_its_own_messages(redis_url: str) -> None:
    """A sweep that took longer than its interval was once followed by the next, and no score was ever computed."""
    program = (
        "from celery.signals import celeryd_init; from worker.app import app\n"
        "celeryd_init.send(sender='one@test', conf=app.conf)\n"
        "queues = list(app.amqp.queues.consume_from.values())\n"
        "taken = []\n"
        "with app.connection_for_read() as connection:\n"
        "    for queue in reversed(queues):\n"
        "        connection.Producer().publish(queue.name, exchange='', routing_key=queue.name, declare=[queue])\n"
        "    with connection.Consumer(queues, callbacks=[lambda body, message: (taken.append(body), message.ack())]) "
        "as consumer:\n"
        "        consumer.qos(prefetch_count=1)\n"
        "        while len(taken) < len(queues): connection.drain_events(timeout=10)\n"
        "print(*taken)"
    )
    taken = run_code(program, LETHE_REDIS_URL=redis_url)
    assert taken.split() == [
        "lethe.control", "lethe.prepare", "one@test.dq2", "lethe.cpu", "lethe.messages", "lethe.metrics",
    ]  # fmt: skip


def test_pulse_is_two_messages_in_the_workers_own_queue(redis_url: str, redis_server: RedisProcess) -> None:
    """However often it beats, and although Redis knows of no exchange."""
    imports = "from worker.app import app; from worker.celery_extensions import beat"
    program = f"{imports}; [beat(app, 'one@test') for _ in range(5)]"
    run_code(program, LETHE_REDIS_URL=redis_url)
    with redis.Redis.from_url(redis_server.client_url) as client:
        lists = {key.decode(): client.llen(key) for key in client.keys("*") if client.type(key) == b"list"}
        assert lists == {"one@test.dq2": 2}
        assert 0 < client.ttl("one@test.dq2") <= 3600


@pytest.mark.slow
def test_worker_stops_while_redis_is_silent(redis_server, migrated_sqlite_url, tmp_path):
    environment = os.environ | {
        "LETHE_WORKER_TAKES": "messages",
        "LETHE_WORKER_CONCURRENCY": "1",
        "LETHE_SWEEP_INTERVAL_S": "600",
        "LETHE_DATABASE_URL": migrated_sqlite_url,
        "LETHE_REDIS_URL": redis_server.broker_url,
        "LETHE_HOME": str(tmp_path / "home"),
    }
    log = tmp_path / "log"
    options = ["--loglevel", "info", "--without-gossip", "--without-mingle"]
    with (
        log.open("wb") as file,
        subprocess.Popen(
            [sys.executable, "-m", "worker", *options], env=environment, stderr=file, stdout=file
        ) as worker,
    ):
        try:
            wait_until(lambda: "ready" in log.read_text(), about=log.read_text)
            os.kill(redis_server.pid, signal.SIGSTOP)
            try:
                time.sleep(10)  # in which it would find out
                worker.terminate()
                worker.wait(90)
            finally:
                os.kill(redis_server.pid, signal.SIGCONT)
        finally:
            worker.kill()


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
