"""A burst of many teams at once: when the first and the median submission has its score.

    python -m benchmarks.platform.burst [--teams 200] [--workers 8] [--shards 12] [--smoke-s 1] [--shard-s 60]

The queue is the real one, in an SQLite database, and so are claims and closes. The work is not done: a shard takes its
given time on a clock of the simulation, so the figures are of the order alone, and the same on every machine. A score
follows the last shard at once.
"""

import heapq
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import TypeVar

from sqlalchemy.orm import Session

from benchmarks.platform.claims import competition_file
from benchmarks.shared import options
from server import queue
from server.db import Base, Database, now
from server.evaluations import evaluations, leases
from server.evaluations.claimed_shard import ClaimedShard
from server.migrate import upgrade
from server.models.account import Account
from server.models.competition import Competition, CompetitionState, Split, SplitState, Team
from server.models.evaluation import ShardKind
from server.models.submission import Submission

Row = TypeVar("Row", bound=Base)


def main() -> None:
    given = options(__doc__, teams=200, workers=8, shards=12, smoke_s=1.0, shard_s=60.0)
    queue.send = lambda *_, **__: True  # no broker is here, and none is needed: every worker asks by itself
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'burst.db'}"
        upgrade(url)
        database = Database(url)
        submit(database, teams=given.teams, shards=given.shards)
        costs = {ShardKind.SMOKE: given.smoke_s, ShardKind.RUNS: given.shard_s}
        scored = sorted(play(database, workers=given.workers, shards=given.shards, costs=costs))
        database.dispose()
    found = {"first_s": scored[0], "median_s": median(scored), "last_s": scored[-1]}
    print(json.dumps({"teams": given.teams, "workers": given.workers, "scored": len(scored)} | found))


def submit(database: Database, *, teams: int, shards: int) -> None:
    """Let every team send one submission at the same moment."""
    file = competition_file().model_copy(update={"n_models": shards, "shard_runs": 1})
    with database.write() as session:
        owner = _added(session, Account(name="owner", name_key="owner", password_hash="x"))
        values = {"slug": file.slug, "opens_at": file.opens_at, "closes_at": file.closes_at, "created_by": owner.id}
        values |= {"config": json.loads(file.model_dump_json()), "state": CompetitionState.OPEN.value}
        competition = _added(session, Competition(title="Big", source="", **values))
        ready = {"state": SplitState.READY.value, "manifest_sha256": "0" * 64, "retraining_time_s": 1.0}
        _added(session, Split(competition_id=competition.id, visibility="private", **ready))
        split = _added(session, Split(competition_id=competition.id, visibility="public", **ready))
        for number in range(teams):
            evaluations.start(session, _submission(session, competition, f"team-{number}"), split, smoke=True)


def _submission(session: Session, competition: Competition, name: str) -> Submission:
    account = _added(session, Account(name=name, name_key=name, password_hash="x"))
    team = _added(session, Team(competition_id=competition.id, name=name, name_key=name, leader_id=account.id))
    ids = {"competition_id": competition.id, "team_id": team.id, "account_id": account.id}
    code = {"filename": "a.py", "kind": "py", "content_sha256": "0" * 64, "size_bytes": 1}
    point = {"file": "a.py", "function": "unlearning", "style": "dict", "keywords": []}
    return _added(session, Submission(**ids, **code, entry_point=point, received_at=now()))


def _added(session: Session, row: Row) -> Row:
    session.add(row)
    session.flush()
    return row


def play(database: Database, *, workers: int, shards: int, costs: dict[ShardKind, float]) -> Iterator[float]:
    """Yield the time at which each submission has its score."""
    at, free, number = 0.0, workers, 0
    busy: list[tuple[float, int, ClaimedShard]] = []
    left: dict[str, int] = {}
    while True:
        while free and (shard := database.retrying(lambda s: leases.claim(s, worker="w", lease_s=1e6))):
            heapq.heappush(busy, (at + costs[shard.kind], number, shard))
            free, number = free - 1, number + 1
        if not busy:
            return
        at, _, done = heapq.heappop(busy)
        free += 1
        database.retrying(lambda s, done=done: _close(s, done))  # type: ignore[misc]
        if done.kind is ShardKind.RUNS:
            left[done.submission_id] = left.get(done.submission_id, shards) - 1
            if left[done.submission_id] == 0:
                yield at


def _close(session: Session, shard: ClaimedShard) -> bool:
    return leases.close(session, shard, result_key="k", result_sha256="0" * 64, wall_time_s=0.0, verified_share=0.0)


if __name__ == "__main__":
    main()
