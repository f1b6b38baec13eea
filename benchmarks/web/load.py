"""Closed and open load on one web process, 1 to 1,000 clients: requests a second, waiting times, recovery.

`python -m benchmarks.web.load [--clients 1,10,100,1000 --seconds N --teams N --submissions N --json FILE]`

Closed load: each client asks again as soon as it is answered. Open load: requests come at a rate, whether or not the
earlier ones are answered. Every figure stands beside the same figure of an empty route in the same run, for client and
server share the machine's cores.
"""

import argparse
import asyncio
import json
import random
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.web.client import Answer, Connection
from benchmarks.web.measure import postgres, session_cookie, web_server
from benchmarks.web.seed import Seeded, seed
from server.db import Database
from server.migrate import upgrade
from server.storage import Storage

EMPTY = "empty route"
STREAM = "submission's stream"
RATES = (0.5, 0.9, 1.5)  # of the closed load's requests a second
RECOVERED = 2.0  # times the time of an answer before the burst
LONGEST_S = 120.0
OPEN_S = 4.0


@dataclass(frozen=True)
class Target:
    """What is asked for, and by whom."""

    name: str
    path: str
    cookie: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", default="1,10,100,1000")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each closed load")
    parser.add_argument("--teams", type=int, default=500)
    parser.add_argument("--submissions", type=int, default=5000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lethe-load-") as folder, postgres() as url:
        home = Path(folder)
        upgrade(url)
        database = Database(url)
        storage = Storage((home / "storage").as_uri())
        made = seed(database, teams=options.teams, submissions=options.submissions, storage=storage)
        targets = make_targets(made, session_cookie(database, made.participant))
        database.dispose()
        clients = [int(number) for number in options.clients.split(",")]
        with web_server(url, home) as (port, _):
            found = asyncio.run(measure(port, targets, clients=clients, seconds=options.seconds))
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


def make_targets(made: Seeded, cookie: str) -> list[Target]:
    base = f"/competitions/{made.slug}"
    return [
        Target(EMPTY, "/hello"),
        Target("board, JSON of 100", f"/api/v1{base}/leaderboard?limit=100"),
        Target("board, page", f"{base}/leaderboard", cookie),
        Target("submission, page", f"/submissions/{made.scored_submission_id}", cookie),
        Target(STREAM, f"/submissions/{made.running_submission_id}/events", cookie),
    ]


async def measure(port: int, targets: list[Target], *, clients: list[int], seconds: float) -> list[dict[str, object]]:
    rows = []
    print(f"{'closed load':<22}{'clients':>8}{'a second':>10}{'of empty':>9}{'p50 ms':>9}{'p99 ms':>9}{'failed':>8}")
    per_second: dict[tuple[str, int], float] = {}
    for target in targets:
        if target.name != STREAM:
            await closed(port, target, clients=1, seconds=0.0)  # a route is worked out when it is first used
    for n in clients:
        for target in targets:
            one = first_events if target.name == STREAM else closed
            row = await one(port, target, clients=n, seconds=seconds)
            per_second[target.name, n] = rate = float(str(row["per_s"]))
            row["of_empty"] = round(rate / per_second[EMPTY, n], 3)
            rows.append(row)
            print(f"{target.name:<22}{n:>8}{row['per_s']:>10}{row['of_empty']:>9}{_waits(row)}")
    print(f"{'open load':<22}{'rate':>8}{'a second':>10}{'of closed':>9}{'p50 ms':>9}{'p99 ms':>9}{'failed':>8}")
    middle = clients[len(clients) // 2]
    for target in targets[1:4]:
        for share in RATES:
            rate = share * per_second[target.name, middle]
            row = await opened(port, target, rate=rate)
            rows.append(row)
            print(f"{target.name:<22}{rate:>8.0f}{row['per_s']:>10}{share:>9}{_waits(row)}")
    for target in targets[1:4]:
        row = await recovery(port, target, clients=max(clients))
        rows.append(row)
        print(
            f"after {max(clients)} at once, {target.name}: answered in {row['burst_s']} s, as before {row['after_s']} s"
        )
    return rows


def _waits(row: dict[str, object]) -> str:
    return f"{row['p50_ms']:>9}{row['p99_ms']:>9}{row['failed']:>8}"


async def closed(port: int, target: Target, *, clients: int, seconds: float) -> dict[str, object]:
    """Each client asks again when it is answered, and at least once."""
    connections = [await Connection.open(port, cookie=target.cookie) for _ in range(clients)]
    until = time.perf_counter() + seconds

    async def ask(connection: Connection) -> list[Answer]:
        answers = [await connection.get(target.path)]
        while time.perf_counter() < until:
            answers.append(await connection.get(target.path))
        return answers

    started = time.perf_counter()
    given = await asyncio.wait_for(asyncio.gather(*map(ask, connections)), seconds + LONGEST_S)
    elapsed = time.perf_counter() - started
    for connection in connections:
        connection.close()
    return summary(target, "closed", [answer for own in given for answer in own], elapsed) | {"clients": clients}


async def first_events(port: int, target: Target, *, clients: int, seconds: float) -> dict[str, object]:
    """Open as many streams at once, as browsers do after a restart; the answer is each stream's first event."""
    del seconds

    async def watch() -> tuple[Connection, Answer]:
        connection = await Connection.open(port, cookie=target.cookie)
        started = time.perf_counter()
        event = await connection.first_event(target.path)
        return connection, Answer(200 if b"data: " in event else 0, len(event), time.perf_counter() - started)

    started = time.perf_counter()
    watched = await asyncio.wait_for(asyncio.gather(*(watch() for _ in range(clients))), LONGEST_S)
    elapsed = time.perf_counter() - started
    for connection, _ in watched:
        connection.close()
    return summary(target, "closed", [answer for _, answer in watched], elapsed) | {"clients": clients}


async def opened(port: int, target: Target, *, rate: float) -> dict[str, object]:
    """Send requests at random times, `rate` a second on average, each on a connection of its own."""
    rng = random.Random(1)

    async def ask() -> Answer:
        started = time.perf_counter()
        connection = await Connection.open(port, cookie=target.cookie)
        answer = await connection.get(target.path)
        connection.close()
        return Answer(answer.status, answer.n_bytes, time.perf_counter() - started)

    tasks, started = [], time.perf_counter()
    due = started
    while due < started + OPEN_S:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(ask()))
        due += rng.expovariate(rate)
    answers = await asyncio.wait_for(asyncio.gather(*tasks), LONGEST_S)
    return summary(target, "open", answers, time.perf_counter() - started)


async def recovery(port: int, target: Target, *, clients: int) -> dict[str, object]:
    """Send all at once, then see when one request is answered as quickly as before."""
    alone = await closed(port, target, clients=1, seconds=1.0)
    usual_s = float(str(alone["p50_ms"])) / 1000
    started = time.perf_counter()
    burst = await closed(port, target, clients=clients, seconds=0.0)
    burst_s = time.perf_counter() - started
    while (await closed(port, target, clients=1, seconds=0.0))["p50_ms"] > 1000 * RECOVERED * usual_s:  # type: ignore[operator]
        if time.perf_counter() - started > LONGEST_S:
            raise TimeoutError(f"{target.name} is not as before after {LONGEST_S:g} s")
    after_s = time.perf_counter() - started - burst_s
    return {"name": target.name, "load": "burst", "failed": burst["failed"], "burst_s": round(burst_s, 2)} | {
        "after_s": round(after_s, 3)
    }


def summary(target: Target, load: str, answers: list[Answer], elapsed: float) -> dict[str, object]:
    waits = sorted(1000 * answer.seconds for answer in answers)
    return {
        "name": target.name,
        "load": load,
        "per_s": round(len(answers) / elapsed, 1),
        "p50_ms": round(statistics.median(waits), 1),
        "p99_ms": round(waits[int(0.99 * (len(waits) - 1))], 1),
        "failed": sum(answer.status != 200 for answer in answers),
    }


if __name__ == "__main__":
    main()
