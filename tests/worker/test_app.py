"""The worker's queues: its own kind of device and what every worker takes; one message reaches one queue."""

import os
import subprocess
import sys


def queues(**environment: str) -> list[tuple[str, str, str]]:
    program = (
        "from worker.app import app; [print(q.name, q.exchange.name, q.routing_key) for q in app.amqp.queues.values()]"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ | environment
    )
    return [tuple(line.split()) for line in found.stdout.splitlines()]  # type: ignore[misc]


def test_worker_takes_its_own_kind_of_shards_alone() -> None:
    assert [name for name, _, _ in queues()] == ["lethe.control", "lethe.cpu", "lethe.prepare"]
    assert [name for name, _, _ in queues(LETHE_WORKER_DEVICE="cuda", LETHE_WORKER_PREPARES="false")] == [
        "lethe.control",
        "lethe.cuda",
    ]


def test_no_message_reaches_two_queues() -> None:
    found = queues()
    assert len({(exchange, key) for _, exchange, key in found}) == len(found)
