"""How soon the web server answers while hostile uploads are read, and what they cost it.

    python -m benchmarks.web.hostile [--uploads 10] [--requests 300]

One web process over SQLite on loopback, without a worker. /healthz and a board are asked for in turns, first alone,
then while `--uploads` people send what is made to keep its readers busy, again and again. Then honest files are sent,
one person after another.
"""

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import httpx

from server.accounts import service as accounts
from server.accounts import tokens
from server.competitions import service as competitions
from server.config import Settings
from server.db import Database
from server.embedded.instance import running
from server.models.account import Role
from server.models.competition import SplitState
from tests.support.instance import GOOD_CODE, PASSWORD, competition_toml, make_zip

CALLS = b"f()\n" * 200_000
HOSTILE = (
    ("a.py", GOOD_CODE + b'x = f"' + b"{a}" * 68_000 + b'"\n'),
    ("a.py", GOOD_CODE + b"f()\n" * 500_000),
    ("a.zip", make_zip({f"m{number}.py": CALLS for number in range(8)} | {"unlearning.py": GOOD_CODE + CALLS})),
)
PATHS = ("/healthz", "/competitions/digits/leaderboard")
UPLOAD = "/api/v1/competitions/digits/submissions"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--uploads", type=int, default=10)
    parser.add_argument("--requests", type=int, default=300)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lethe-bench-") as folder, served(Path(folder), options.uploads) as people:
        url, headers = people
        with httpx.Client(base_url=url, timeout=120, trust_env=False) as client:
            report(client, "warming", options.requests // 10)
            report(client, "idle", options.requests)
            with flooded(url, headers):
                time.sleep(2)
                report(client, "hostile", options.requests)
            print(json.dumps(honest(client, headers)), flush=True)


@contextmanager
def served(folder: Path, n_people: int) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Run a web process with one open competition. Yield its address and what each person calls with."""
    os.environ |= {"LETHE_UPLOADS_PER_10_MIN": "0", "LETHE_HOME": str(folder)}
    settings = Settings(home=folder, port=0)
    with running(settings, worker=False) as instance:
        database = Database(settings.resolved_database_url)
        with database.write() as session:
            people = [accounts.register(session, name=f"person-{n}", password=PASSWORD) for n in range(n_people)]
            olga = accounts.register(session, name="olga", password=PASSWORD, role=Role.ORGANISER)
            text = competition_toml(limits={"submissions_per_day": 10_000})
            competition = competitions.create(session, text, organiser=olga)
            for split in competitions.splits(session, competition):
                split.state, split.manifest_sha256, split.n_forget = SplitState.READY.value, "0" * 64, 10
                split.retraining_time_s = 1.0
            competition.state = "open"
            issued = [tokens.issue(session, person, label="bench").token for person in people]
        database.dispose()
        yield instance.url, [{"Authorization": f"Bearer {token}"} for token in issued]


@contextmanager
def flooded(url: str, people: list[dict[str, str]]) -> Iterator[None]:
    """Have every person send hostile files without a pause."""
    over = threading.Event()

    def send(headers: dict[str, str], first: int) -> None:
        with httpx.Client(base_url=url, timeout=300, trust_env=False) as client:
            for number in count(first):
                if over.is_set():
                    return
                filename, data = HOSTILE[number % len(HOSTILE)]
                client.post(UPLOAD, headers=headers, files={"file": (filename, data)})

    threads = [threading.Thread(target=send, args=(headers, number)) for number, headers in enumerate(people)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def report(client: httpx.Client, name: str, requests: int) -> None:
    """Print how long each page takes, milliseconds."""
    taken: dict[str, list[float]] = {path: [] for path in PATHS}
    for _ in range(requests):
        for path in PATHS:
            taken[path].append(timed(lambda path=path: client.get(path)))  # type: ignore[misc]
    for path, times_s in taken.items():
        ordered = sorted(times_s)
        found = {"median": ordered[len(ordered) // 2], "p99": ordered[int(len(ordered) * 0.99)], "worst": ordered[-1]}
        shown = {f"{key}_ms": round(1000 * value, 1) for key, value in found.items()}
        print(json.dumps({"while": name, "path": path} | shown | {"peak_mib": peak_mib()}), flush=True)


def honest(client: httpx.Client, people: list[dict[str, str]], n_files: int = 100) -> dict[str, object]:
    """Return how many small files a second are taken, one after another."""
    text = Path("examples/submissions/noise_finetune.py").read_bytes()
    began = time.perf_counter()
    for number in range(n_files):
        headers = people[number % len(people)]
        answer = client.post(UPLOAD, headers=headers, files={"file": ("a.py", text + b"# %d\n" % number)})
        answer.raise_for_status()
    taken_s = time.perf_counter() - began
    return {"honest_uploads_per_s": round(n_files / taken_s, 1), "peak_mib": peak_mib(), "load": os.getloadavg()[0]}


def timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def peak_mib() -> int:
    """Return the most memory that the web process has had, MiB."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            status = (folder / "status").read_text()
        except OSError:
            continue
        if f"PPid:\t{os.getpid()}\n" in status and (b"uvicorn" in words or b"server" in words):
            return int(status.split("VmHWM:")[1].split()[0]) >> 10
    return 0


if __name__ == "__main__":
    main()
