"""`lethe up` in a folder that is not ours: whatever lies there changes nothing, and a dead process is noticed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import descendants

ROOT = Path(__file__).parents[3]
RAN = "from pathlib import Path; Path(__file__).with_name('ran-a-stranger').touch(); raise SystemExit('a stranger')"
WITHIN_S = 90.0


def wait_for(log: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while text not in log.read_text() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert text in log.read_text()


@pytest.fixture
def up(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`lethe up` as the installed command starts it, in a folder with files of our packages' names."""
    folder = tmp_path / "elsewhere"
    for package in ("sandbox", "migrations", "lethe"):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").write_text(RAN)
    for module in ("server", "worker", "tasks"):
        (folder / f"{module}.py").write_text(RAN)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LETHE_REDIS_URL")}
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from lethe.cli.main import main; main()"
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", code, "up"],
            cwd=folder,
            env=environment
            | {"LETHE_HOME": str(tmp_path / "home"), "LETHE_PORT": "0", "PYTHONUNBUFFERED": "1"}
            | {"LETHE_WORKER_CONCURRENCY": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def find_worker(process: subprocess.Popen[bytes]) -> int:
    found = [pid for pid, command in descendants(process.pid) if "-m worker" in command]
    assert found
    return min(found)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # ended, though nobody has asked how


def wait_until_gone(pids: list[int], *, within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while alive := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < deadline, f"processes {alive} outlive their worker"
        time.sleep(0.1)


@pytest.mark.slow
def test_up_ignores_the_folder_and_notices_a_dead_worker(up: subprocess.Popen[bytes], tmp_path: Path) -> None:
    wait_for(tmp_path / "log", "Ctrl-C ends it", up)
    wait_for(tmp_path / "home" / "logs" / "worker.log", "", up)
    worker, below = find_worker(up), []
    while len(below) < 2:  # what computes and what schedules; a stranger's module would have ended the worker before
        assert up.poll() is None
        below = [pid for pid, _ in descendants(worker)]
        time.sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    assert up.wait(30) == 1
    wait_until_gone(below)
    log = (tmp_path / "log").read_text()
    assert "the worker process ended (exit -9)" in log
    assert "worker.log" in log
    assert list((tmp_path / "elsewhere").rglob("ran-a-stranger")) == []
