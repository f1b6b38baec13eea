"""One situation: a copy of the checkout, the tests in it, and how they ended."""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from scripts.test_fresh_checkout.checkout import ROOT, copy_checkout, make_demo_small, make_environment
from scripts.test_fresh_checkout.machine import all_cores_busy, memory_taken
from scripts.test_fresh_checkout.namespaces import STRANGER_ID, files_left, inside
from scripts.test_fresh_checkout.situations import BEFORE, Situation, allowed

LOGS = ROOT / "build" / "stranger"


@dataclass(frozen=True)
class Outcome:
    """How one situation ended. verdict: green, red, or left out; failures: the tests' names."""

    name: str
    covers: str
    left_out: tuple[str, ...]
    verdict: str = "left out"
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: int = 0
    memory_gib: float = 0.0
    failures: tuple[str, ...] = ()
    remark: str = ""


def outcome_of(wanted: Situation, tests: tuple[str, ...], *, starts: int) -> Outcome:
    """Run it. tests: pytest's arguments. starts: how often the small demo is started, where that is what is run."""
    situation, left_out = allowed(wanted)
    if situation is None:
        return Outcome(wanted.name, wanted.covers(), left_out)
    LOGS.mkdir(parents=True, exist_ok=True)
    path = LOGS / f"{situation.name}.log"
    print(f"== {situation.name}: {situation.covers()}; {path}", flush=True)
    with ExitStack() as stack:
        above = str(Path.home()) if situation.closed_home else tempfile.gettempdir()
        parent = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stranger-", dir=above)))
        checkout = _prepare(situation, parent)
        path.write_bytes(b"")
        log = stack.enter_context(path.open("ab"))
        if situation.after_root:
            _run(["make", "test", "TEST_WORKERS=1", _asked(situation, BEFORE)], checkout, situation, log, as_user=False)
            shutil.rmtree(checkout / ".pytest_cache", ignore_errors=True)
            log.truncate(0)
            _give_folders(checkout)
        stack.enter_context(all_cores_busy() if situation.busy else ExitStack())
        memory, started = stack.enter_context(memory_taken()), time.monotonic()
        words = _small_demo(checkout, starts) if situation.demo else ["make", "test", _asked(situation, tests)]
        status = _run(words, checkout, situation, log, as_user=situation.user)
        seconds = round(time.monotonic() - started)
        left = files_left() if situation.user else []
    remark = f"left in common folders: {', '.join(left[:5])}" if left else ""
    return _read(path, situation, left_out, status=status, seconds=seconds, memory_gib=max(memory), remark=remark)


def _prepare(situation: Situation, parent: Path) -> Path:
    parent.chmod(0o700 if situation.closed_home else 0o755)
    checkout, home = parent / situation.place, parent / "home"
    home.mkdir()
    copy_checkout(checkout)
    if situation.user:
        for path in (home, checkout, *checkout.rglob("*")):
            os.chown(path, STRANGER_ID, STRANGER_ID, follow_symlinks=False)
    make_environment(checkout, python=situation.python)
    if situation.user:
        _give_folders(checkout)
    return checkout


def _give_folders(checkout: Path) -> None:
    """Let the stranger keep bytecode, as who has made an environment may: or each process compiles again."""
    for path in (checkout, *checkout.rglob("*/")):
        if not path.is_symlink():  # and no file: the environment's are links to another's
            os.chown(path, STRANGER_ID, STRANGER_ID)


def _asked(situation: Situation, tests: tuple[str, ...]) -> str:
    order = ("-p", "randomly", f"--randomly-seed={time.time_ns() % 2**32}") if situation.random_order else ()
    return f"ARGS={shlex.join([*tests, *order])}"


def _small_demo(checkout: Path, starts: int) -> list[str]:
    """Return what starts a demo of few models again and again, beside a scheduler that looks twenty times a second."""
    make_demo_small(checkout)
    start = 'LETHE_HOME="$HOME/demo-$n" LETHE_SWEEP_INTERVAL_S=0.05 LETHE_PORT=0 make demo ARGS=--exit || exit 1'
    loop = f'n=0; while [ $n -lt {starts} ]; do {start}; rm -rf "$HOME/demo-$n"; n=$((n+1)); echo "$n passed"; done'
    return ["sh", "-c", loop]


def _run(words: list[str], checkout: Path, situation: Situation, log: IO[bytes], *, as_user: bool) -> int:
    inner = words
    if situation.files:
        inner = ["sh", "-c", f'ulimit -Sn {situation.files} && exec "$@"', "sh", *inner]
    home = checkout.parent / "home"
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    indexes = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_CERT"))}
    return subprocess.run(
        inside(inner, home=home, network=situation.network, as_user=as_user),
        cwd=checkout,
        env={**kept, **indexes, "HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        check=False,
    ).returncode


def _read(
    log: Path,
    situation: Situation,
    left_out: tuple[str, ...],
    *,
    status: int,
    seconds: int,
    memory_gib: float,
    remark: str,
) -> Outcome:
    lines = log.read_text(errors="replace").splitlines()
    ending = next((line for line in reversed(lines) if re.search(r"\d+ (passed|failed|error)", line)), "")
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", ending)}
    if status:
        print("\n".join(lines[-60:]), flush=True)
        remark = "; ".join(filter(None, (remark, f"ended with {status}")))
    return Outcome(
        situation.name,
        situation.covers(),
        left_out,
        "red" if remark else "green",
        counts.get("passed", 0),
        counts.get("failed", 0) + counts.get("error", 0),
        counts.get("skipped", 0),
        seconds,
        round(memory_gib, 1),
        tuple(line.split(" ", 2)[1] for line in lines if line.startswith(("FAILED tests/", "ERROR tests/"))),
        remark,
    )
