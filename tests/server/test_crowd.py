"""Many requests at once: each is answered, none waits for another that waits for it."""

import asyncio
import re
import resource
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from fastapi.routing import iter_route_contexts

from server.accounts import accounts, tokens
from server.db import Database
from server.main import create_app
from server.models.account import Role
from server.models.evaluation import Rejudging
from server.storage import Storage
from tests.support.http_connection import Answer, Connection
from tests.support.narrow_server import MORE_THAN_BOTH
from tests.support.seeded_competition import Seeded, seed, session_cookie
from tests.support.web_process import web_process

STREAMS = 60  # of one account
WITHIN_S = 25.0  # below the half minute that a request once waited for a connection


@dataclass(frozen=True)
class Crowd:
    """A server with a small competition, and who is logged in there."""

    port: int
    made: Seeded
    cookie: str

    def ask(self, paths: list[str], *, cookie: str = "", token: str = "", within_s: float = WITHIN_S) -> list[Answer]:
        """Return the answers to requests that are all sent before any is read."""
        return asyncio.run(asyncio.wait_for(self._ask(paths, cookie=cookie, token=token), within_s))

    async def _ask(self, paths: list[str], *, cookie: str, token: str = "") -> list[Answer]:
        connections: list[Connection] = []
        try:
            for _ in paths:
                connections.append(await Connection.open(self.port, cookie=cookie, token=token))
            return await asyncio.gather(*(one.get(path) for one, path in zip(connections, paths, strict=True)))
        finally:
            for connection in connections:
                connection.close()


@contextmanager
def crowd_at(database_url: str, redis_url: str, home: Path, *, module: str = "server") -> Iterator[Crowd]:
    database = Database(database_url)
    made = seed(database, teams=12, submissions=60, storage=Storage((home / "storage").as_uri()))
    cookie = session_cookie(database, made.participant)
    database.dispose()
    with web_process(home, module=module, **environment(database_url, redis_url, home)) as port:
        yield Crowd(port, made, cookie)


def environment(database_url: str, redis_url: str, home: Path) -> dict[str, str]:
    return {
        "LETHE_DATABASE_URL": database_url,
        "LETHE_HOME": str(home),
        "LETHE_REDIS_URL": redis_url,
        "LETHE_STORAGE_URL": (home / "storage").as_uri(),
        "LETHE_STREAMS_PER_ACCOUNT": str(STREAMS),
    }


@pytest.fixture
def crowd(migrated_url: str, redis_url: str, tmp_path: Path) -> Iterator[Crowd]:
    with crowd_at(migrated_url, redis_url, tmp_path / "home") as crowd:
        yield crowd


@pytest.mark.slow
@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[0] in range(1100),
    reason="needs 1,100 open files, and the hard limit here is lower (ulimit -Hn)",
)
def test_thousand_requests_at_once_are_all_answered_in_turn(migrated_postgres_url, redis_url, tmp_path):
    """They wait before they reach a database, so its kind says nothing more than sixty do."""
    with crowd_at(migrated_postgres_url, redis_url, tmp_path / "home") as crowd:
        path = f"/api/v1/competitions/{crowd.made.slug}/leaderboard?limit=10"
        few = time.monotonic()
        crowd.ask([path] * 50)
        each_s = (time.monotonic() - few) / 50
        answers = crowd.ask([path] * 1000, within_s=10 * WITHIN_S)
        assert Counter(answer.status for answer in answers) == {200: 1000}
        slowest = max(answer.seconds for answer in answers)
        assert slowest < 3 * each_s * 1000, f"{slowest:.1f} s; one of fifty took {each_s:.4f} s"
        alone = min(crowd.ask([path])[0].seconds for _ in range(5))  # others may hold one of them up
        assert alone < 1.0, "the crowd is gone, and so is its load"


@pytest.mark.slow
def test_requests_beside_sixty_streams_are_all_answered(crowd: Crowd) -> None:
    """More than there are threads and connections; each route by itself is asked on a server that has fewer."""
    stream = f"/submissions/{crowd.made.running_submission_id}/events"
    paths = [
        f"/api/v1/competitions/{crowd.made.slug}/leaderboard?limit=10",
        f"/competitions/{crowd.made.slug}/submissions",
        f"/submissions/{crowd.made.scored_submission_id}",
    ]

    async def watch() -> list[Answer]:
        opened = [await Connection.open(crowd.port, cookie=crowd.cookie) for _ in range(STREAMS)]
        try:
            first = await asyncio.gather(*(one.first_event(stream) for one in opened))
            assert all(b"data: " in event for event in first)
            one_more = await Connection.open(crowd.port, cookie=crowd.cookie)
            refused = await one_more.get(stream)
            assert (refused.status, refused.retry_after) == (429, "10")
            one_more.close()
            return await crowd._ask(paths * 22, cookie=crowd.cookie)
        finally:
            for one in opened:
                one.close()

    answers = asyncio.run(asyncio.wait_for(watch(), WITHIN_S))
    assert Counter(answer.status for answer in answers) == {200: 66}


@pytest.mark.slow
def test_every_read_route_stands_a_burst(migrated_postgres_url: str, redis_url: str, tmp_path: Path) -> None:
    """More at once than threads and connections, each route by itself, pages of organisers and exports included."""
    home = tmp_path / "home"
    database = Database(migrated_postgres_url)
    made = seed(database, teams=12, submissions=60, storage=Storage((home / "storage").as_uri()))
    with database.write() as session:
        accounts.register(session, name="root", password=made.password, role=Role.ADMINISTRATOR)
        rejudging = Rejudging(
            competition_id=made.competition_id,
            visibility="public",
            reason="",
            changed="host",
            chosen={},
            created_by="organiser",
        )
        session.add(rejudging)
        session.flush()
        values = path_values(made) | {"rejudging_id": rejudging.id}
        issued = {
            name: tokens.issue(session, accounts.find(session, name), label="t").token for name in ("root", "ada")
        }
    people = [(session_cookie(database, name), issued[name]) for name in ("root", "ada")]
    database.dispose()
    answered, asked = {}, read_routes(values)
    started = environment(migrated_postgres_url, redis_url, home)
    with web_process(home, module="tests.support.narrow_server", **started) as port:
        crowd = Crowd(port, made, "")
        for path in asked:
            (cookie, token), status = best_asked(crowd, path, people)
            answers = crowd.ask([path] * MORE_THAN_BOTH, cookie=cookie, token=token)
            answered[path] = status
            assert Counter(answer.status for answer in answers) == {status: MORE_THAN_BOTH}, path
    assert {path: status for path, status in answered.items() if status >= 500} == {}
    good = sum(status == 200 for status in answered.values())
    assert good > 0.75 * len(asked), {path: status for path, status in answered.items() if status != 200}


def best_asked(crowd: Crowd, path: str, people: list[tuple[str, str]]) -> tuple[tuple[str, str], int]:
    """Return the first whom a route answers with 200, otherwise who gets the lowest status, and that status."""
    answered = {}
    for cookie, token in people:
        answered[cookie, token] = crowd.ask([path], cookie=cookie, token=token)[0].status
        if answered[cookie, token] == 200:
            break
    return min(answered.items(), key=lambda item: item[1])


def path_values(made: Seeded) -> dict[str, str]:
    """Return what stands for each parameter of a read route's path. A new one is named here."""
    return {
        "slug": made.slug,
        "submission_id": made.scored_submission_id,
        "other": made.failed_submission_id,
        "team_id": "t0",
        "visibility": "public",
        "table": "scores",
        "name": "scores",
        "webhook_id": "1",
        "worker": "w",
        "shard_id": "1",
        "attempt": "1",
        "sha256": "0" * 64,
        "content_hash": "0",
        "path:path": "app.css",
    }


def read_routes(values: dict[str, str]) -> list[str]:
    found = (context.path for context in iter_route_contexts(create_app().routes) if "GET" in (context.methods or ()))
    return [re.sub(r"{([^}]+)}", lambda match: values[match[1]], path) for path in found]
