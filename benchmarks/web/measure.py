"""Time and bytes of every page with 5,000 teams and 100,000 submissions in PostgreSQL.

`python -m benchmarks.web.measure [--teams N --submissions N --times N]`
"""

import asyncio
import statistics
import tempfile
from datetime import timedelta
from pathlib import Path

from benchmarks.shared import options, postgres
from benchmarks.web.client import Connection
from benchmarks.web.seed import Seeded, seed
from server.accounts import accounts, sessions
from server.db import Database
from server.migrate import upgrade
from server.storage import Storage
from server.web.cookies import SESSION_COOKIE
from tests.support.web_process import web_process

WARM_UP, LIMIT_MS = 5, 50.0


def main() -> None:
    given = options(__doc__, teams=5000, submissions=100_000, times=300)
    with tempfile.TemporaryDirectory(prefix="lethe-web-") as folder, postgres() as server:
        home, url = Path(folder), server.url(server.create_database())
        upgrade(url)
        database, storage = Database(url), (Path(folder) / "storage").as_uri()
        made = seed(database, teams=given.teams, submissions=given.submissions, storage=Storage(storage))
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM ANALYZE")  # as autovacuum leaves a database that filled over weeks
        pages = pages_of(made, session_cookie(database, made.participant), session_cookie(database, made.organiser))
        settings = {"LETHE_DATABASE_URL": url, "LETHE_HOME": folder, "LETHE_STORAGE_URL": storage}
        with web_process(home, **settings) as port:
            print(f"{'page':<28}{'p50 ms':>9}{'p99 ms':>9}{'bytes':>9}")
            for name, path, cookie in pages:
                print(asyncio.run(measure(port, name, path, cookie, times=given.times)), flush=True)
        database.dispose()


def pages_of(made: Seeded, ada: str, grace: str) -> list[tuple[str, str, str]]:
    """Return name, path and cookie of every page that is measured."""
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
    ]


async def measure(port: int, name: str, path: str, cookie: str, *, times: int) -> str:
    """Return the line of a page that is asked for again and again on one connection."""
    connection = await Connection.open(port, cookie=cookie)
    answers = [await connection.get(path) for _ in range(WARM_UP + times)][WARM_UP:]
    connection.close()
    if wrong := {answer.status for answer in answers} - {200}:
        raise RuntimeError(f"{name} answered {wrong}")
    took = sorted(1000 * answer.seconds for answer in answers)
    p99 = took[int(0.99 * len(took))]
    late = "  over the limit" if p99 > LIMIT_MS else ""
    return f"{name:<28}{statistics.median(took):>9.1f}{p99:>9.1f}{answers[0].n_bytes:>9}{late}"


def session_cookie(database: Database, name: str) -> str:
    with database.write() as session:
        account = accounts.find(session, name)
        token = sessions.create(session, account, user_agent="benchmark", lifetime=timedelta(hours=1))
    return f"{SESSION_COOKIE}={token}"


if __name__ == "__main__":
    main()
