"""A run cannot tell which one it is: of two runs of one submission, all that they can see is the same."""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.launcher import Launcher, RunRequest, Sandbox, SandboxSpec

from .conftest import TEST_POLICY, write_submission

SEEN = """
import gc, hashlib, json, os, re, resource, sys, time
TOKEN = re.compile(r"[0-9a-f]{16}|0x[0-9a-f]+")

PLAIN = (int, str, bytes, bool, dict, list, tuple)

def plain(value):
    if not isinstance(value, PLAIN):
        return type(value).__name__
    text = TOKEN.sub("-", repr(value))
    return text if len(text) < 300 else hashlib.sha256(text.encode()).hexdigest()

def frames():
    frame = sys._getframe(2)
    while frame is not None:
        yield frame.f_code.co_name, {name: plain(value) for name, value in frame.f_locals.items()}
        frame = frame.f_back

def ages():
    now = time.time()
    for base in ("/data", "/submission"):
        for path in (base, *(f"{base}/{name}" for name in os.listdir(base))):
            found = os.stat(path)
            yield path, [now - when > 60 for when in (found.st_mtime, found.st_ctime, found.st_atime)]

def texts(word):
    n = 0
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", buffering=0) as memory:
        for line in maps.read().splitlines():
            span, rights, *name = line.split()
            if not rights.startswith("rw") or name and name[0] != "[heap]":
                continue
            begin, end = (int(edge, 16) for edge in span.split("-"))
            if end - begin > 1 << 26:
                continue
            try:
                memory.seek(begin)
                n += memory.read(end - begin).count(word)
            except (OSError, OverflowError):
                continue
    return n

def unlearning(net, retain, forget, validation):
    # what stands in memory is looked for first, with a word that is never complete in this code
    number = texts(b"58023" + bytes([49, 55]))
    print(json.dumps({
        "number": number,
        "frames": list(frames()),
        "collector": [gc.get_count()[1:], gc.get_freeze_count()],
        "environment": dict(os.environ),
        "arguments": [sys.argv, open("/proc/self/cmdline").read()],
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if "RLIMIT" in name},
        "descriptors": [os.readlink(f"/proc/self/fd/{n}").split(":")[0] for n in range(4)],
        "processes": [os.getpid(), os.getppid(), os.getsid(0)],
        "others": [name for name in os.listdir("/proc") if name.isdigit()],
        "mounts": [TOKEN.sub("-", " ".join(line.split()[3:6])) for line in open("/proc/self/mountinfo")],
        "groups": open("/proc/self/cgroup").read(),
        "ages": dict(ages()),
    }))
"""
OLD_S = time.time() - 3600


@pytest.fixture(scope="module")
def aged(split: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sandbox, Path]]:
    """A sandbox as workers start it, and a submission that has waited for an hour."""
    folder = tmp_path_factory.mktemp("self-knowledge")
    stage = folder / "stage"
    stage.mkdir()
    code = write_submission(stage, "0123456789abcdef", SEEN)
    for path in (*code.iterdir(), code):
        os.utime(path, (OLD_S, OLD_S))
    spec = SandboxSpec(
        data_dir=split, stage_dir=stage, policy=replace(TEST_POLICY, log_kib=256), neutral_dirs=(folder / "views",)
    )
    with Launcher(spec).start() as sandbox:
        yield sandbox, code


def seen(sandbox: Sandbox, code: Path, **wanted: Any) -> dict[str, Any]:
    result = sandbox.run(RunRequest(code_dir=code, seed=7, **wanted))
    assert result.weights is not None, result.log.decode()[-3000:]
    found: dict[str, Any] = json.loads(result.log)
    return found


def test_smoke_runs_and_hidden_runs_look_the_same(aged: tuple[Sandbox, Path]) -> None:
    sandbox, code = aged
    first = seen(sandbox, code, run=0, kind="sample")
    assert first == seen(sandbox, code, run=5802317, kind="hidden")
    assert first == seen(sandbox, code, run=3, kind="hidden")
    assert not first["number"], "the run's number is nowhere in memory"
    assert {path for path, old in first["ages"].items() if any(old)} == set()
