"""Time and bytes of every page with 5,000 teams and 100,000 submissions in PostgreSQL.

`python -m benchmarks.web.measure [--teams N --submissions N --times N --page NAME --json FILE]`
"""

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from benchmarks.web.client import Answer, one_by_one, per_second
from benchmarks.web.seed import Seeded, seed
from server.accounts import accounts, sessions
from server.db import Database
from server.migrate import upgrade
from server.storage import Storage
from server.web.cookies import SESSION_COOKIE
from tests.support.postgres import PostgresServer

WARM_UP = 5
LIMIT_MS = 50.0
STARTS_WITHIN_S = 120


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teams", type=int, default=5000)
    parser.add_argument("--submissions", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long requests a second are counted")
    parser.add_argument("--page", action="append", help="measure only pages of this name; may be repeated")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lethe-web-") as folder, postgres() as url:
        home = Path(folder)
        upgrade(url)
        database, storage = Database(url), Storage((home / "storage").as_uri())
        began = time.perf_counter()
        made = seed(database, teams=options.teams, submissions=options.submissions, storage=storage)
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE")  # as autovacuum leaves a database that filled over weeks
        print(f"seeded {options.teams} teams, {options.submissions} submissions in {time.perf_counter() - began:.0f} s")
        cookies = {name: session_cookie(database, name) for name in (made.participant, made.organiser)}
        with web_server(url, home) as (port, pid):
            pages = [one for one in count_pages(made, cookies) if one[0] in (options.page or [one[0]])]
            board = f"/competitions/{made.slug}/leaderboard"
            found = asyncio.run(measure(port, pages, board, pid=pid, times=options.times, seconds=options.seconds))
        database.dispose()
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


def count_pages(made: Seeded, cookies: dict[str, str]) -> list[tuple[str, str, str]]:
    """Return name, path and cookie of every page that is measured."""
    ada, grace = cookies[made.participant], cookies[made.organiser]
    base, organise = f"/competitions/{made.slug}", f"/organise/{made.slug}"
    two = f"first={made.scored_submission_id}&second={made.other_scored_submission_id}"
    return [
        ("competitions", "/", ""),
        ("competitions, own work", "/", ada),
        ("overview", base, ada),
        ("leaderboard, anonymous", f"{base}/leaderboard", ""),
        ("leaderboard, own team", f"{base}/leaderboard", ada),
        ("leaderboard, page 40", f"{base}/leaderboard?page=40", ada),
        ("leaderboard, search", f"{base}/leaderboard?q=heron", ada),
        ("leaderboard, JSON of 100", f"/api/v1{base}/leaderboard?limit=100", ""),
        ("team on the board", f"{base}/teams/{made.own_team_id}", ada),
        ("submit", f"{base}/submit", ada),
        ("my submissions", f"{base}/submissions", ada),
        ("two of my submissions", f"{base}/submissions/compare?{two}", ada),
        ("submission, running", f"/submissions/{made.running_submission_id}", ada),
        ("submission, failed", f"/submissions/{made.failed_submission_id}", ada),
        ("submission, scored", f"/submissions/{made.scored_submission_id}", ada),
        ("team", f"{base}/team", ada),
        ("account", "/account", ada),
        ("dashboard", "/organise", grace),
        ("control", organise, grace),
        ("organiser's submissions", f"{organise}/submissions", grace),
        ("organiser's, failed only", f"{organise}/submissions?stage=failed", grace),
        ("submission in depth", f"{organise}/submissions/{made.scored_submission_id}", grace),
        ("audit log", f"{organise}/audit", grace),
        ("limits", f"{organise}/limits", grace),
        ("new competition", "/organise/new", grace),
        ("HTTP API", "/api/docs", ada),
    ]


async def measure(
    port: int, pages: list[tuple[str, str, str]], board: str, *, pid: int, times: int, seconds: float
) -> dict[str, object]:
    rows = []
    print(f"{'page':<28}{'p50 ms':>9}{'p99 ms':>9}{'CPU ms':>9}{'bytes':>9}")
    for name, path, cookie in pages:
        await one_by_one(port, path, times=WARM_UP, cookie=cookie)
        before = cpu_seconds(pid)
        answers = await one_by_one(port, path, times=times, cookie=cookie)
        cpu_ms = round(1000 * (cpu_seconds(pid) - before) / times, 1)
        row = summary(name, answers) | {"cpu_ms": cpu_ms}
        rows.append(row)
        late = "  over the limit" if float(str(row["p99_ms"])) > LIMIT_MS else ""
        print(f"{name:<28}{row['p50_ms']:>9}{row['p99_ms']:>9}{row['cpu_ms']:>9}{row['bytes']:>9}{late}")
    hello = await per_second(port, "/hello", seconds=seconds)
    leaderboard = await per_second(port, board, seconds=seconds)
    print(f"hello {hello:.0f}/s, leaderboard {leaderboard:.0f}/s, ratio {leaderboard / hello:.2f}")
    return {"pages": rows, "hello_per_s": round(hello), "leaderboard_per_s": round(leaderboard)}


def summary(name: str, answers: list[Answer]) -> dict[str, object]:
    wrong = {answer.status for answer in answers} - {200}
    if wrong:
        raise RuntimeError(f"{name} answered {wrong}")
    milliseconds = sorted(1000 * answer.seconds for answer in answers)
    return {
        "name": name,
        "p50_ms": round(statistics.median(milliseconds), 1),
        "p99_ms": round(milliseconds[int(0.99 * len(milliseconds))], 1),
        "bytes": answers[0].n_bytes,
    }


def cpu_seconds(pid: int) -> float:
    """Return the processor time that the web server has used; what PostgreSQL uses is not in it."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def session_cookie(database: Database, name: str) -> str:
    with database.write() as session:
        account = accounts.find(session, name)
        token = sessions.create(session, account, user_agent="benchmark", lifetime=timedelta(hours=1))
    return f"{SESSION_COOKIE}={token}"


@contextmanager
def postgres() -> Iterator[str]:
    server = PostgresServer()
    try:
        server.start()
        yield server.url(server.create_database())
    finally:
        server.remove()


@contextmanager
def web_server(database_url: str, home: Path) -> Iterator[tuple[int, int]]:
    """One uvicorn process, as an instance starts it: its port, and its process id."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    environment = {
        **os.environ,
        "LETHE_DATABASE_URL": database_url,
        "LETHE_HOME": str(home),
        "LETHE_STORAGE_URL": (home / "storage").as_uri(),
    }
    command = [sys.executable, "-m", "uvicorn", "--factory", "benchmarks.web.app:create_app", "--no-access-log"]
    with (
        (home / "server.log").open("wb") as log,
        subprocess.Popen(
            [*command, "--port", str(port), "--log-level", "warning"], env=environment, stdout=log, stderr=log
        ) as process,
    ):
        try:
            wait_for(port, process)
            yield port, process.pid
        finally:
            process.terminate()


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(10 * STARTS_WITHIN_S):
        if process.poll() is not None:
            raise RuntimeError("the web server ended")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError("the web server did not start")


if __name__ == "__main__":
    main()
