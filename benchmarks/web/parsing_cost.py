"""What reading uploads in a child process costs an honest upload, beside reading them in the web server's own.

    python -m benchmarks.web.parsing_cost [--uploads 200]

Two web processes serve one instance on loopback: the server as it is, and one that reads every text itself, as
versions before did. Each of the repository's example submissions goes to both in turns, so that a busy machine holds
both up alike. Times are of one upload after another, and of eight people who send at the same time.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import median

import httpx

from benchmarks.web.hostile import UPLOAD, served, timed
from tests.support.ports import free_port

EXAMPLES = sorted(Path("examples/submissions").glob("*.py"))
AT_ONCE = 8
SERVE = "from server.serve import main; main()"
IN_PROCESS = f"""
from server.parsing import client
from server.parsing.tasks import TASKS
client.run = lambda task, data, **options: TASKS[task](data, **options)
{SERVE}
"""
_numbers = count()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--uploads", type=int, default=200, help="to each server, one after another")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="lethe-bench-") as folder,
        served(Path(folder), AT_ONCE) as (_, people),
        web_process(SERVE) as url,
        web_process(IN_PROCESS) as other_url,
        httpx.Client(base_url=url, timeout=60, trust_env=False) as child,
        httpx.Client(base_url=other_url, timeout=60, trust_env=False) as own,
    ):
        for client in (child, own) * 5:
            send(client, people[0])
        times: dict[str, list[float]] = {"child": [], "own": []}
        for number in range(options.uploads):
            order = (("child", child), ("own", own)) if number % 2 else (("own", own), ("child", child))
            for name, client in order:
                times[name].append(timed(lambda client=client: send(client, people[0])))  # type: ignore[misc]
        print(json.dumps(compared("one after another", {name: median(each) for name, each in times.items()})))
        crowds = {name: [crowd(client, people) for _ in range(5)] for name, client in (("child", child), ("own", own))}
        print(json.dumps(compared(f"{AT_ONCE} at once", {name: min(each) for name, each in crowds.items()})))


def compared(name: str, seconds: dict[str, float]) -> dict[str, object]:
    """Return both times and what share of the throughput the child process costs."""
    shown = {f"{key}_ms": round(1000 * value, 2) for key, value in seconds.items()}
    share = 1 - seconds["own"] / seconds["child"]
    return {"uploads": name, **shown, "throughput_lost": round(share, 3), "load": round(os.getloadavg()[0], 1)}


def crowd(client: httpx.Client, people: list[dict[str, str]], each: int = 5) -> float:
    """Return the time of one upload where everybody sends at the same time, seconds."""
    began = time.perf_counter()
    with ThreadPoolExecutor(len(people)) as pool:
        list(pool.map(lambda headers: [send(client, headers) for _ in range(each)], people))
    return (time.perf_counter() - began) / (each * len(people))


def send(client: httpx.Client, headers: dict[str, str]) -> httpx.Response:
    """Send an example as a file that was not sent before. Return the answer, which takes it."""
    number = next(_numbers)
    text = EXAMPLES[number // 2 % len(EXAMPLES)].read_bytes() + b"\n# %d\n" % number
    return client.post(UPLOAD, headers=headers, files={"file": ("a.py", text)}).raise_for_status()


@contextmanager
def web_process(program: str) -> Iterator[str]:
    """Run another web process of the instance. Yield its address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-c", program, "--port", str(port), "--log-level", "warning"]
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(Path.cwd())})
    try:
        while True:
            try:
                httpx.get(f"{url}/healthz", trust_env=False).raise_for_status()
            except httpx.HTTPError:
                time.sleep(0.2)
            else:
                break
        yield url
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
