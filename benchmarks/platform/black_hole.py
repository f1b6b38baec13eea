"""Web processes before a database, a broker and a storage that hang: open connections, no answer.

    python -m benchmarks.platform.black_hole [--connections 10]

One process reaches each service through a proxy that goes silent, its twin reaches the same database directly. Printed
is how long each answer took, seconds, with its status: a page that was shown before, a write, `/healthz`, `/readyz`,
and an upload while Redis or S3 is silent.
"""

import json
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx
from sqlalchemy import make_url

from benchmarks.shared import options, postgres
from server.accounts import accounts, tokens
from server.competitions import competitions
from server.db import Database
from server.embedded.redis import start_redis
from server.migrate import upgrade
from server.models.account import Role
from server.models.competition import CompetitionState, SplitState
from tests.support.black_hole import BlackHole, black_hole
from tests.support.instance import GOOD_CODE, competition_toml
from tests.support.postgres import PostgresServer
from tests.support.s3 import s3_server
from tests.support.web_process import web_process

PASSWORD = "a long password"
MAX_S = 60.0  # then a request counts as unanswered
TOKENS = "/api/v1/tokens"


def main() -> None:
    connections = options(__doc__, connections=10).connections  # that the process has before the silence
    with postgres() as server, ExitStack() as stack:
        url = server.url(server.create_database())
        upgrade(url)
        headers = fill(url)
        for name, found in measure(stack, server, url, headers, connections=connections).items():
            print(json.dumps({name: found}), flush=True)


def fill(url: str) -> dict[str, str]:
    """Make an open competition and a participant. Return the headers of the participant's requests."""
    database = Database(url)
    with database.write() as session:
        owner = accounts.register(session, name="olga", password=PASSWORD, role=Role.ORGANISER)
        ada = accounts.register(session, name="ada", password=PASSWORD)
        headers = {"Authorization": f"Bearer {tokens.issue(session, ada, label='benchmark').token}"}
        competition = competitions.create(session, competition_toml(), organiser=owner)
        for split in competitions.splits(session, competition):
            split.state, split.manifest_sha256, split.n_forget = SplitState.READY.value, "0" * 64, 10
            split.retraining_time_s = 1.0
        competition.state = CompetitionState.OPEN.value
    database.dispose()
    return headers


def measure(
    stack: ExitStack, server: PostgresServer, url: str, headers: dict[str, str], *, connections: int
) -> dict[str, dict[str, str]]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    database = stack.enter_context(black_hole(server.folder / ".s.PGSQL.5432"))
    (folder / "redis").mkdir()
    broker = stack.enter_context(start_redis(folder / "redis"))
    redis = stack.enter_context(black_hole(broker.socket))
    s3 = stack.enter_context(s3_server())
    storage = stack.enter_context(black_hole(int(httpx.URL(s3.environment["AWS_ENDPOINT_URL"]).port or 80)))
    hung = s3.environment | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{storage.port}"}
    through = f"postgresql://postgres@127.0.0.1:{database.port}/{make_url(url).database}"
    victim, twin = (
        stack.enter_context(client_of(stack, folder / name, environment))
        for name, environment in (
            ("victim", hung | {"LETHE_DATABASE_URL": through, "LETHE_REDIS_URL": f"redis://127.0.0.1:{redis.port}"}),
            ("twin", s3.environment | {"LETHE_DATABASE_URL": url, "LETHE_REDIS_URL": broker.broker_url}),
        )
    )
    busy = [threading.Thread(target=victim.get, args=("/",)) for _ in range(connections)]
    for thread in busy:
        thread.start()
    for thread in busy:
        thread.join()
    return {
        "database": in_silence(
            database,
            {
                "twin page": lambda: twin.get("/"),
                "page": lambda: victim.get("/"),
                "write": lambda: victim.post(TOKENS, json={"name": "ada", "password": PASSWORD}),
                "second write": lambda: victim.post(TOKENS, json={"name": "ada", "password": PASSWORD}),
                "healthz": lambda: victim.get("/healthz"),
                "readyz": lambda: victim.get("/readyz"),
            },
        ),
        "redis": in_silence(redis, of_uploads(victim, headers)),
        "s3": in_silence(storage, of_uploads(victim, headers)),
    }


def client_of(stack: ExitStack, folder: Path, environment: dict[str, str]) -> httpx.Client:
    port = stack.enter_context(web_process(folder, LETHE_HOME=str(folder / "home"), **environment))
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=MAX_S)


def of_uploads(client: httpx.Client, headers: dict[str, str]) -> dict[str, Callable[[], httpx.Response]]:
    uploads = "/api/v1/competitions/digits/submissions"
    return {
        "upload": lambda: client.post(uploads, headers=headers, files={"file": ("submission.py", GOOD_CODE)}),
        "page": lambda: client.get("/"),
        "readyz": lambda: client.get("/readyz"),
    }


def in_silence(proxy: BlackHole, requests: dict[str, Callable[[], httpx.Response]]) -> dict[str, str]:
    """Return how long each request took while the proxy is silent, with its status."""
    found = {}
    with proxy.silent():
        for name, ask in requests.items():
            began = time.monotonic()
            try:
                status = str(ask().status_code)
            except httpx.TimeoutException:
                status = "no answer"
            found[name] = f"{time.monotonic() - began:.2f} s, {status}"
            print(name, found[name], flush=True)
    time.sleep(12)  # what was refused for a while is asked for again
    return found


if __name__ == "__main__":
    main()
