"""Limits of what is done at one time: requests that use the database, of which others wait; shares of one owner.

A request runs in several threads one after another and keeps its connection in between. If more requests started than
there are connections, those that wait for a connection would hold the threads that the others need: a deadlock. So a
request waits for its turn before it holds anything, as a coroutine, first come, first served; the web server limits how
many there are. Code that opens a session in a web server does it within a turn.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Concatenate, ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.orm import Session
from starlette.requests import ClientDisconnect

from lethe.errors import AppError
from server.db import CONNECTIONS, Database
from server.errors import Overloaded, RateLimited

RETRY_AFTER_S = 10


class Shares:
    """So many for each owner, and so many for all together; 0: any number. `what` ends the refusal's sentence."""

    def __init__(self, *, per_owner: int, in_all: int, what: str) -> None:
        self._per_owner = per_owner
        self._in_all = in_all
        self._what = what
        self._held: Counter[Hashable] = Counter()

    def find_refusal(self, owner: Hashable) -> AppError | None:
        """Return why `owner` is refused: 429 for its own share, 503 for the total; None if it is admitted."""
        if self._per_owner and self._held[owner] >= self._per_owner:
            return RateLimited(f"You have {self._what} already; wait until they end", retry_after_s=RETRY_AFTER_S)
        if self._in_all and self._held.total() >= self._in_all:
            return Overloaded(f"The server has {self._what} already; try again shortly", retry_after_s=RETRY_AFTER_S)
        return None

    def take(self, owner: Hashable) -> None:
        self._held[owner] += 1

    def give_back(self, owner: Hashable) -> None:
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]


P = ParamSpec("P")
T = TypeVar("T")

MAX_LOOKS = 2  # of event streams
RESERVED = 4  # connections for what no request waits for: boards that are computed again, readiness
MAX_TURNS = CONNECTIONS - MAX_LOOKS - RESERVED
MAX_LONG_REQUESTS = 4
_END = object()


class Admission:
    """The turns of one web process. Used from its event loop."""

    def __init__(self, *, at_once: int = MAX_TURNS) -> None:
        self._turns = asyncio.Semaphore(at_once)
        self._looks = asyncio.Semaphore(MAX_LOOKS)
        self._long_work: CapacityLimiter | None = None

    @asynccontextmanager
    async def turn(self, request: Request | None = None) -> AsyncIterator[None]:
        """Wait for a turn and hold it. Raises ClientDisconnect where the request's client has gone."""
        has_to_wait = self._turns.locked()
        async with self._turns:
            if has_to_wait and request is not None and await request.is_disconnected():
                raise ClientDisconnect
            yield

    async def run(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `step` gives, which runs in a thread and has its own turn."""
        async with self.turn():
            return await run_in_threadpool(step, *args, **kwargs)

    async def read(
        self, database: Database, step: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Return what `step` gives in a session that reads."""

        def reading() -> T:
            with database.read() as session:
                return step(session, *args, **kwargs)

        return await self.run(reading)

    async def write(
        self, database: Database, step: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Return what `step` gives in a session that writes, and is committed then."""

        def writing() -> T:
            with database.write() as session:
                return step(session, *args, **kwargs)

        return await self.run(writing)

    async def look(self, step: Callable[[], T]) -> T:
        """Return what an event stream's look at the database gives. Streams have turns of their own, and few."""
        async with self._looks:
            result, cost_s = await run_in_threadpool(_with_cost, step)
            # However many streams there are, requests have the larger part of the processor's time.
            await asyncio.sleep(2 * cost_s)
            return result

    async def long_work(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `step` gives, which takes long and opens no session. It runs in one of a few threads for that."""
        return await to_thread.run_sync(lambda: step(*args, **kwargs), limiter=self._limiter())

    async def pieces(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Yield what an iterator gives that waits for a disk or a network, without the threads that requests need."""
        while (piece := await to_thread.run_sync(next, pieces, _END, limiter=self._limiter())) is not _END:
            yield piece  # type: ignore[misc]  # only the end is not a piece

    def _limiter(self) -> CapacityLimiter:
        if self._long_work is None:
            self._long_work = CapacityLimiter(MAX_LONG_REQUESTS)  # belongs to the event loop that first asks
        return self._long_work


def _with_cost(step: Callable[[], T]) -> tuple[T, float]:
    """Return what `step` gives and the processor time that it took, seconds."""
    started = time.thread_time()
    result = step()
    return result, time.thread_time() - started


async def this_admission(request: Request) -> Admission:
    """Return this application's admission."""
    admission: Admission = request.app.state.admission
    return admission


AdmissionDep = Annotated[Admission, Depends(this_admission)]


async def admitted(request: Request, admission: AdmissionDep) -> AsyncIterator[None]:
    """Hold a turn while the request's sessions are open, and not while its answer is sent."""
    async with admission.turn(request):
        yield


Admitted = Annotated[None, Depends(admitted, scope="function")]
