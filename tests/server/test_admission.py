"""Turns at the database: so many at a time, in the order of coming."""

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
from server.admission import Admission, admitted
from server.db import CONNECTIONS
from server.deps import this_database
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
