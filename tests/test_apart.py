"""A test process keeps to its own folder and to this machine, and so does what it starts."""

import os
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_temporary_files_lie_in_the_process_own_folder() -> None:
    folder = Path(tempfile.gettempdir())
    assert any(part.startswith("lethe-tests-") for part in folder.parts)
    child = [sys.executable, "-c", "import tempfile; print(tempfile.gettempdir())"]
    assert subprocess.run(child, capture_output=True, text=True, check=True).stdout.strip() == str(folder)


def test_process_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    """Nor does one that it has started, as pytest-xdist starts and kills its own."""
    started = "import os; from tests.support import apart; apart.own_folder(); os._exit(9)"
    starting = f"""
import os, subprocess, sys
from tests.support import apart
apart.own_folder()
print(subprocess.run([sys.executable, "-c", {started!r}]).returncode, len(os.listdir(os.environ["TMPDIR"])))
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_DEBUG_TEMPROOT"}
    done = subprocess.run(
        [sys.executable, "-c", starting],
        env=environment | {"TMPDIR": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["9", "1"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")])
@pytest.mark.parametrize("way", ["connect", "connect_ex"])
def test_no_test_connects_beyond_this_machine(way: str, family: socket.AddressFamily, host: str) -> None:
    with socket.socket(family) as outward, pytest.raises(RuntimeError, match=f"a test asks the network: {way} {host}"):
        getattr(outward, way)((host, 80))


@pytest.mark.parametrize("way", ["getaddrinfo", "gethostbyname", "gethostbyname_ex"])
def test_no_test_asks_for_a_name(way: str) -> None:
    with pytest.raises(RuntimeError, match=rf"a test asks the network: {way} example\.org"):
        getattr(socket, way)(*("example.org", 80)[: 2 if way == "getaddrinfo" else 1])


def test_this_machines_own_name_may_be_asked_for() -> None:
    with suppress(socket.gaierror):  # it may have no address
        socket.gethostbyname(socket.gethostname())


def test_what_a_test_starts_finds_no_index() -> None:
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--find-links", os.devnull, "left-pad"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "No matching distribution" in done.stderr


def test_threads_start_while_others_are_traced() -> None:
    """Coverage installs a trace function in each thread; before Python 3.12 an audit hook lets two of them collide."""
    tracing = """
import sys, threading
from tests.support import apart
apart.refuse_network()
sys.setswitchinterval(1e-6)
failed = []
def trace():
    for _ in range(20_000):
        try:
            sys.settrace(None)
        except RuntimeError as error:
            failed.append(error)
threads = [threading.Thread(target=trace) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(failed))
"""
    done = subprocess.run([sys.executable, "-c", tracing], cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) == 0
