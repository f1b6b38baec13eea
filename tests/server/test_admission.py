"""Turns at the database, values kept in proportion to what they cost, and who holds how much."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, iter_route_contexts
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from server import admission
from server.admission import Admission, Shares, admitted
from server.cost_cache import MAX_KEYS, CostCache
from server.db import CONNECTIONS
from server.deps import this_database
from server.errors import Overloaded, RateLimited
from server.main import create_app


def test_admissions_are_fewer_than_connections_and_threads() -> None:
    in_threads = admission.MAX_TURNS + admission.MAX_LOOKS
    assert 0 < in_threads < CONNECTIONS
    assert in_threads < 40  # anyio's threads


def test_turns_are_given_in_the_order_of_coming() -> None:
    order: list[int] = []

    async def hold(turns: Admission, number: int) -> None:
        async with turns.turn():
            order.append(number)
            await asyncio.sleep(0)

    async def run() -> None:
        turns = Admission(at_once=2)
        await asyncio.gather(*(hold(turns, number) for number in range(20)))

    asyncio.run(run())
    assert order == list(range(20))


def test_client_that_left_while_waiting_is_not_worked_for() -> None:
    async def gone() -> Message:
        return {"type": "http.disconnect"}

    async def run() -> None:
        turns = Admission(at_once=1)
        request = Request({"type": "http", "headers": []}, gone)

        async def come() -> None:
            async with turns.turn(request):
                pytest.fail("its turn came")

        async with turns.turn():
            waiting = asyncio.create_task(come())
            await asyncio.sleep(0)
        with pytest.raises(ClientDisconnect):
            await waiting
        assert await turns.run(lambda: "next") == "next"

    asyncio.run(asyncio.wait_for(run(), 60))


def test_looks_of_streams_are_few_and_leave_time() -> None:
    at_once: list[int] = []
    running, lock = set(), threading.Lock()

    def look() -> None:
        with lock:
            running.add(threading.get_ident())
            at_once.append(len(running))
        until = time.thread_time() + 0.01
        while time.thread_time() < until:
            pass
        with lock:
            running.discard(threading.get_ident())

    async def run() -> float:
        turns = Admission()
        started = time.monotonic()
        await asyncio.gather(*(turns.look(look) for _ in range(10)))
        return time.monotonic() - started

    took = asyncio.run(run())
    assert max(at_once) <= admission.MAX_LOOKS
    assert took > 3 * 0.01 * 10 / admission.MAX_LOOKS * 0.9


def needed(dependant: Dependant) -> Iterator[object]:
    yield dependant.call
    for one in dependant.dependencies:
        yield from needed(one)


def test_every_route_with_a_database_waits_for_its_turn() -> None:
    """One that is given the database without a turn runs in the event loop, where it can do nothing but ask for one."""
    alone = []
    with_database = 0
    for context in iter_route_contexts(create_app().routes):
        route = context.original_route
        if not isinstance(route, APIRoute):
            continue
        calls = set(needed(route.dependant))
        with_database += admitted in calls
        if this_database in calls and admitted not in calls and not asyncio.iscoroutinefunction(route.endpoint):
            alone.append(route.path)
    assert with_database > 100
    assert alone == ["/forgot"]  # its mail is written after the answer, in its own turn


class Clock:
    """A clock that only moves when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("cost_s", "later_s", "shown", "is_made_behind"),
    [
        (0.1, 1.9, "old", False),  # it is kept for twenty times its cost
        (0.1, 2.1, "old", True),
        (60.0, 9.99, "old", False),  # and never longer than ten seconds
        (60.0, 10.01, "old", True),
        (0.01, 1.0, "new", False),  # a cheap one is made again at once
        (0.03, 0.63, "old", True),  # a costly one in the background, unless it is long out of date
        (0.03, 1.23, "new", False),
        (1.0, 20.5, "new", False),
    ],
)
def test_a_value_is_kept_in_proportion_to_its_cost(cost_s, later_s, shown, is_made_behind):
    clock, made = Clock(), threading.Event()
    cache: CostCache[str] = CostCache(clock)

    def costly() -> str:
        clock.now += cost_s
        return "old"

    def behind() -> str:
        made.set()
        return "behind"

    cache.get("k", costly)
    clock.now += later_s
    assert cache.get("k", lambda: "new", in_background=behind) == shown
    assert made.wait(10 if is_made_behind else 0) is is_made_behind


def test_what_fails_is_not_kept_and_leaves_nothing_behind() -> None:
    cache: CostCache[float] = CostCache()
    for key in range(10):
        with pytest.raises(ZeroDivisionError):
            cache.get(key, lambda: 1 / 0)
    assert cache._computing == {}
    assert cache.get(3, lambda: 2.0) == 2.0


def test_while_one_computes_the_others_get_the_old_value() -> None:
    clock = Clock()
    cache: CostCache[str] = CostCache(clock)
    cache.get("k", lambda: "old")
    clock.now += 100
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> str:
        begun.set()
        go_on.wait(10)
        return "new"

    worker = threading.Thread(target=cache.get, args=("k", slow))
    worker.start()
    begun.wait(10)
    meanwhile = cache.get("k", lambda: "computed twice")
    go_on.set()
    worker.join()
    assert meanwhile == "old"


def test_keys_that_are_gone_leave_nothing_behind() -> None:
    cache: CostCache[int] = CostCache()
    for key in range(3 * MAX_KEYS):
        cache.get(key, lambda: 0)
    assert len(cache._kept) <= MAX_KEYS
    assert len(cache._computing) <= MAX_KEYS


def test_large_values_push_the_oldest_out() -> None:
    cache: CostCache[str] = CostCache(lambda: 0.0, size=len, max_size=100)
    for key in range(5):
        cache.get(key, lambda: "x" * 30)
    assert list(cache._kept) == [2, 3, 4]
    assert cache._total == 90
    cache.get("large", lambda: "x" * 101)
    assert "large" not in cache._kept, "alone it would be too much"
    assert cache._total == 0


def test_a_value_made_again_counts_once() -> None:
    clock = Clock()
    cache: CostCache[str] = CostCache(clock, size=len, max_size=100)
    for _ in range(20):
        cache.get("k", lambda: "x" * 30)
        clock.now += 100
    assert cache._total == 30


def test_owner_and_all_have_their_shares() -> None:
    shares = Shares(per_owner=2, in_all=3, what="pages open")
    for owner in ("ada", "ada", "bob"):
        assert shares.find_refusal(owner) is None
        shares.take(owner)
    assert isinstance(shares.find_refusal("ada"), RateLimited)
    refusal = shares.find_refusal("bob")
    assert isinstance(refusal, Overloaded)
    assert "pages open" in refusal.detail
    assert refusal.retry_after_s
    shares.give_back("ada")
    assert shares.find_refusal("bob") is None


def test_zero_is_no_limit() -> None:
    shares = Shares(per_owner=0, in_all=0, what="pages open")
    for _ in range(1000):
        shares.take("ada")
    assert shares.find_refusal("ada") is None
