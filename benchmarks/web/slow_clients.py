"""What one account holds that sends slowly, or opens many live pages, and how long a page of somebody else then takes.

    python -m benchmarks.web.slow_clients [--uploads 10] [--mib 19] [--seconds 90] [--streams 800]

One web process over SQLite on loopback, without a worker. First `--uploads` files are sent but for their last bytes,
which come one every 5 s; each answer, and the largest size of temporary files, is reported. Then `--streams` event
streams of one submission are opened, and another account asks for the same page.
"""

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.web.client import Connection
from benchmarks.web.measure import session_cookie
from benchmarks.web.seed import Seeded, seed
from server.accounts import service as accounts
from server.accounts import tokens
from server.config import Settings
from server.db import Database
from server.embedded.instance import running
from server.models.account import Role
from server.models.competition import Competition
from server.storage import Storage

BYTE_EVERY_S = 5.0
HEAD = (
    "POST /api/v1/competitions/{slug}/submissions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {length}\r\n\r\n"
)
FORM = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.zip"\r\n\r\n'
MIB = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--uploads", type=int, default=10)
    parser.add_argument("--mib", type=int, default=19)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--streams", type=int, default=800)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lethe-bench-") as name:
        home, temporary = Path(name, "home"), Path(name, "tmp")
        temporary.mkdir()
        os.environ |= {"LETHE_HOME": str(home), "TMPDIR": str(temporary)}
        settings = Settings(home=home, port=0)
        with running(settings, worker=False) as instance:
            database = Database(settings.resolved_database_url)
            made = seed(database, teams=12, submissions=60, storage=Storage(settings.resolved_storage_url))
            _allow(database, made, options.mib + 1)
            token, cookie = _token(database, made), session_cookie(database, made.participant)
            other = session_cookie(database, _other(database, made))
            port, pid = int(instance.url.rpartition(":")[2]), instance.processes["web"].pid
            uploads = upload_slowly(port, pid, made.slug, token, options)
            print(json.dumps(asyncio.run(uploads)), flush=True)
            streams = open_streams(port, made.running_submission_id, cookie, other, options.streams)
            print(json.dumps(asyncio.run(streams)), flush=True)
            database.dispose()


def _allow(database: Database, made: Seeded, upload_mib: int) -> None:
    with database.write() as session:
        competition = session.get_one(Competition, made.competition_id)
        limits = competition.config["limits"] | {"upload_mib": upload_mib}
        competition.config = competition.config | {"limits": limits}


def _token(database: Database, made: Seeded) -> str:
    with database.write() as session:
        return tokens.issue(session, accounts.find(session, made.participant), label="slow").token


def _other(database: Database, made: Seeded) -> str:
    """Return the name of an administrator, who may see the same page."""
    with database.write() as session:
        accounts.register(session, name="root", password=made.password, role=Role.ADMINISTRATOR)
    return "root"


async def upload_slowly(port: int, pid: int, slug: str, token: str, options: argparse.Namespace) -> dict[str, object]:
    """Return the answers, how long after its start each came, and how much the server held on the disk, MiB."""
    started, held = time.monotonic(), [0.0]
    watcher = asyncio.create_task(_watch(pid, held))
    each = [_upload(port, slug, token, options, started) for _ in range(options.uploads)]
    answers = await asyncio.gather(*each)
    at_end = temporary_mib(pid)
    watcher.cancel()
    return {
        "uploads": options.uploads,
        "mib_each": options.mib,
        "answers": dict(Counter(status for status, _ in answers)),
        "last_answer_s": round(max(seconds for _, seconds in answers), 1),
        "temporary_mib_most": round(max(held), 1),
        "temporary_mib_at_end": round(at_end, 1),
    }


async def _upload(port: int, slug: str, token: str, options: argparse.Namespace, started: float) -> tuple[str, float]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    length = options.mib * MIB + 10_000
    writer.write(HEAD.format(slug=slug, token=token, length=length).encode() + FORM)
    answer = asyncio.create_task(reader.read(12))
    try:
        for _ in range(options.mib):
            writer.write(b"#" * MIB)
            await writer.drain()
        while time.monotonic() < started + options.seconds and not answer.done():
            writer.write(b"#")
            await asyncio.wait([answer], timeout=BYTE_EVERY_S)
    except ConnectionError:
        pass
    ended = time.monotonic() - started
    if not answer.done():
        answer.cancel()
        writer.close()
        return "none", ended
    try:
        status = answer.result().decode().partition(" ")[2] or "closed"
    except ConnectionError:
        status = "closed"
    writer.close()
    return status, ended


async def _watch(pid: int, held: list[float]) -> None:
    while True:
        held.append(temporary_mib(pid))
        await asyncio.sleep(0.5)


def temporary_mib(pid: int) -> float:
    """Return the size of the deleted files that a process has open, MiB."""
    sizes = 0
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if str(path.readlink()).endswith(" (deleted)"):
                sizes += path.stat().st_size
        except OSError:
            continue  # closed meanwhile
    return sizes / MIB


async def open_streams(port: int, submission_id: str, cookie: str, other: str, streams: int) -> dict[str, object]:
    """Return how many streams were opened, and how long three pages of somebody else took beside them, seconds."""
    page = f"/submissions/{submission_id}"
    connection = await Connection.open(port, cookie=other)
    alone = [(await connection.get(page)).seconds for _ in range(3)]
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(streams)]
    head = f"GET {page}/events HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n".encode()
    for _, writer in opened:
        writer.write(head)
    await asyncio.sleep(0.5)
    beside = [(await connection.get(page)).seconds for _ in range(3)]
    statuses = await asyncio.gather(*(asyncio.wait_for(reader.read(12), 60) for reader, _ in opened))
    for _, writer in opened:
        writer.close()
    connection.close()
    return {
        "streams": streams,
        "answers": dict(Counter(status.decode().partition(" ")[2] for status in statuses)),
        "page_s_alone": round(min(alone), 3),
        "page_s_beside_streams": [round(seconds, 3) for seconds in beside],
    }


if __name__ == "__main__":
    main()
