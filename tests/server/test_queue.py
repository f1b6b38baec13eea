"""Messages are bounded: however much waits, a queue holds a few."""

import os
import signal
import time
from datetime import timedelta

import pytest
import redis

from server import queue
from server.db import clock
from server.embedded.redis import RedisProcess
from server.evaluations import lease_reaper
from tests.support.instance import Instance, instance

CPU = queue.RoutingKey("cpu", "digits")


def length(url: str, name: str) -> int:
    with redis.Redis.from_url(url) as client:
        return int(client.llen(name))  # type: ignore[arg-type]


def test_hints_at_many_shards_are_few(server: Instance, redis_server: RedisProcess) -> None:
    for _ in range(100):
        assert queue.send(queue.EVALUATE_SHARD, to=CPU)
    assert length(redis_server.client_url, "lethe.cpu") == queue.MAX_WAKE_UPS


def test_hint_is_sent_again_once_one_was_taken(server: Instance, redis_server: RedisProcess) -> None:
    for _ in range(10):
        queue.send(queue.EVALUATE_SHARD, to=CPU)
    with redis.Redis.from_url(redis_server.client_url) as client:
        client.rpop("lethe.cpu", 3)
        queue.send(queue.EVALUATE_SHARD, to=CPU)
        assert client.llen("lethe.cpu") == queue.MAX_WAKE_UPS - 2


def test_messages_that_nobody_takes_are_bounded(server: Instance, redis_server: RedisProcess) -> None:
    for number in range(2 * queue.MAX_WAITING):
        queue.send(queue.SCORE_EVALUATION, f"e{number}")
        queue.send(queue.PREPARE_SPLIT, f"s{number}")
        queue.send(queue.SWEEP)
    assert length(redis_server.client_url, queue.CONTROL_QUEUE) == queue.MAX_WAITING
    assert length(redis_server.client_url, queue.PREPARE_QUEUE) == queue.MAX_WAITING


def test_sweeps_do_not_add_up(server: Instance, redis_server: RedisProcess) -> None:
    server.competition()
    for number in range(5):
        assert server.submit(server.participant(f"ada-{number}")).status_code == 201
    with redis.Redis.from_url(redis_server.client_url) as client:
        client.flushall()
    for _ in range(30):
        with server.database.write() as session:
            later = clock(session) + timedelta(minutes=1)
            lease_reaper.sweep(session, later, max_attempts=3)
    assert 0 < length(redis_server.client_url, "lethe.cpu") <= queue.MAX_WAKE_UPS


@pytest.fixture
def with_own_redis(private_redis, migrated_sqlite_url, tmp_path, monkeypatch):
    folder = tmp_path
    with instance(
        monkeypatch,
        database_url=migrated_sqlite_url,
        redis_url=private_redis.broker_url,
        folder=folder,  # type: ignore[arg-type]
    ) as running:
        yield running


def test_full_redis_takes_nothing_and_is_reported(with_own_redis: Instance, private_redis: RedisProcess) -> None:
    assert with_own_redis.client.get("/readyz").json()["queue"] == "ok"
    with redis.Redis.from_url(private_redis.client_url) as client:
        client.config_set("maxmemory", "1")
        client.config_set("maxmemory-policy", "noeviction")
    assert not queue.send(queue.SWEEP)
    with_own_redis.client.app.state.readiness.__init__()  # type: ignore[attr-defined]  # what it found is a second old
    answer = with_own_redis.client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json()["queue"] != "ok"
    assert answer.json()["database"] == "ok"


def test_frozen_redis_is_told_soon_and_holds_few_up(with_own_redis: Instance, private_redis: RedisProcess) -> None:
    with_own_redis.competition(limits={"submissions_per_day": 10})
    headers = with_own_redis.participant()
    assert with_own_redis.submit(headers).status_code == 201
    os.kill(private_redis.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        assert with_own_redis.client.get("/readyz").json()["queue"].startswith("does not answer")
        assert time.monotonic() - began < 5
        assert with_own_redis.submit(headers).status_code == 201  # which finds that it is silent
        began = time.monotonic()
        assert {with_own_redis.submit(headers).status_code for _ in range(4)} == {201}
        assert time.monotonic() - began < 5
    finally:
        os.kill(private_redis.pid, signal.SIGCONT)


def test_only_requests_spare_a_redis_that_failed(with_own_redis, private_redis, monkeypatch):
    """A worker's message is sent as soon as Redis is back."""
    monkeypatch.setattr(queue, "BACKOFF_FACTOR", 1e6)  # times the moment that a refusal takes
    for requests_wait in (False, True):
        queue.client().requests_wait = requests_wait
        with redis.Redis.from_url(private_redis.client_url) as client:
            client.config_set("maxmemory", "1")
            client.config_set("maxmemory-policy", "noeviction")
            assert not queue.send(queue.SWEEP)
            client.config_set("maxmemory", "0")
        assert queue.send(queue.SWEEP) is not requests_wait
