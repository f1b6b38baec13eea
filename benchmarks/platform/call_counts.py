"""How many functions and files of this project one upload, one shard and one board go through.

    python -m benchmarks.platform.call_counts

Counted with sys.setprofile, after each was done once: calls of functions below lethe, server, worker and sandbox, the
files that they lie in, and moves: calls that lie in another file than the one before. SQLite and a Redis of its own.
"""

import json
import sys
import tempfile
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from server.embedded.redis import start_redis
from server.evaluations import leases
from server.migrate import upgrade
from tests.support.instance import Instance, instance

ROOT = Path(__file__).parents[2]
PACKAGES = tuple(f"{ROOT / name}/" for name in ("lethe", "server", "worker", "sandbox"))


FILES: list[str] = []  # of each call since the last count, in every thread


def note(frame: Any, event: str, _: Any) -> None:
    if event == "call" and frame.f_code.co_filename.startswith(PACKAGES):
        FILES.append(frame.f_code.co_filename)


def counted(act: Callable[[], object]) -> dict[str, int]:
    """Return the calls, files and moves of an act."""
    FILES.clear()
    act()
    files = FILES[:]
    moves = sum(before != after for before, after in pairwise(files))
    return {"calls": len(files), "files": len(set(files)), "moves": moves}


def main() -> None:
    threading.setprofile(note)  # threads that exist already would not have it
    sys.setprofile(note)
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        url = f"sqlite:///{folder / 'db.sqlite'}"
        upgrade(url)
        with (
            start_redis(folder) as redis,
            instance(patch, database_url=url, redis_url=redis.broker_url, folder=folder) as server,
        ):
            server.competition()
            server.score(server.submit(server.participant("grace")).json()["id"], 0.5)
            ada = server.participant()
            acts: list[Callable[[], None]] = [
                lambda: upload(server, ada),
                lambda: lease_and_close(server),
                lambda: board(server),
            ]
            for act in acts:
                act()
                print(json.dumps(counted(act)))


def upload(server: Instance, ada: Any) -> None:
    answer = server.submit(ada)
    assert answer.status_code == 201, answer.text


def lease_and_close(server: Instance) -> None:
    with server.database.write() as session:
        shard = leases.claim(session, worker="w", lease_s=60)
    assert shard is not None
    result: dict[str, Any] = {"result_key": None, "result_sha256": None}
    with server.database.write() as session:
        assert leases.close(session, shard, **result, wall_time_s=1.0, verified_share=0.05)


def board(server: Instance) -> None:
    answer = server.client.get("/api/v1/competitions/digits/leaderboard")
    assert answer.status_code == 200, answer.text


if __name__ == "__main__":
    main()
