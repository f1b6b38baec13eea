"""Run the tests as strangers do: in odd places, as other users, with fewer files, without a network, on a busy machine.

    python -m scripts.test_as_a_stranger                    each situation that this machine allows, the chosen tests
    python -m scripts.test_as_a_stranger --whole            every test; hours
    python -m scripts.test_as_a_stranger --only together    one situation; --list names them

Each situation is a copy of the checkout with an environment of links to this one's packages, or one installed by `make
install` where it needs another Python. Prints a table, and what was left out and why. Exit status 1 if a test failed.
Root can do all of it: an ordinary user has one user and no mounts.
"""

import argparse
import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
STRANGER, STRANGER_ID = "lethe-stranger", 60_791
# What a machine, a user or a place once changed the outcome of.
CHOSEN = (
    "tests/golden/test_check.py",
    "tests/lethe/runtime/test_notebook_shell.py",
    "tests/sandbox/test_visibility.py",
    "tests/server/cli/test_demo.py",
    "tests/server/embedded/test_redis.py",
    "tests/server/test_crowd.py::test_thousand_requests_at_once_are_all_answered_in_turn",
    "tests/server/test_storage.py",
    "tests/test_compose_processes.py::test_service_has_users_mounts_and_limits_of_the_file",
    "tests/test_find_python.py",
    "tests/test_fixtures.py",
)


@dataclass(frozen=True)
class Situation:
    """How the tests are run.

    user: as an ordinary user. closed_home: below a folder of mode 0700. place: the checkout's folder. files: the soft
    limit of open files. python: another version. args: of pytest. demo: a small one, again and again, not the tests.
    """

    name: str
    user: bool = False
    closed_home: bool = False
    place: str = "lethe"
    files: int | None = None
    network: bool = True
    busy: bool = False
    after_root: bool = False
    python: str | None = None
    args: tuple[str, ...] = ()
    demo: bool = False


SITUATIONS = (
    Situation("root-below-tmp"),
    Situation("root-below-closed-home", closed_home=True),
    Situation("user-path-with-space", user=True, place="my clone"),
    Situation("user-path-beyond-ascii", user=True, place="Größe"),
    Situation("few-open-files", files=1024),
    Situation("no-network", network=False),
    Situation("busy-cores", busy=True),
    Situation("leftovers-of-another-user", user=True, after_root=True),
    Situation("once-more"),
    Situation("random-order", args=("-p", "randomly")),
    *(Situation(f"python-{version}", python=version) for version in ("3.11", "3.12", "3.13", "3.14")),
    Situation("demo", demo=True),
    Situation("together", user=True, place="my Größe", files=1024, network=False),
)


@dataclass(frozen=True)
class Outcome:
    """How one situation ended. passed: None if it was left out, for the reason in `told`."""

    name: str
    passed: bool | None
    told: str
    seconds: float = 0.0
    memory_gib: float = 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="SITUATION", help="may be given more than once")
    parser.add_argument("--whole", action="store_true", help="every test, not the chosen ones")
    parser.add_argument("--list", action="store_true", help="name the situations, and what this machine lacks for them")
    parser.add_argument("--starts", type=int, default=50, help="how often the small demo is started (50)")
    parser.add_argument("arguments", nargs="*", help="of pytest, after --: instead of the chosen tests")
    options = parser.parse_args()
    known = {situation.name: situation for situation in SITUATIONS}
    if unknown := set(options.only or ()) - known.keys():
        parser.error(f"{', '.join(sorted(unknown))} is no situation; there are {', '.join(known)}")
    # What `together` does, the others do one by one.
    wanted = [known[name] for name in options.only or [name for name in known if name != "together"]]
    if options.list:
        for situation in wanted:
            print(f"{situation.name:28} {missing(situation) or 'can run here'}")
        return 0
    tests = tuple(options.arguments) or (() if options.whole else CHOSEN)
    outcomes = [_outcome(situation, tests, starts=options.starts) for situation in wanted]
    print()
    for outcome in outcomes:
        verdict = {True: "green", False: "RED", None: "left out"}[outcome.passed]
        cost = f"{outcome.seconds:6.0f} s {outcome.memory_gib:5.1f} GiB" if outcome.seconds else " " * 18
        print(f"{outcome.name:28} {verdict:8} {cost}  {outcome.told}")
    return 1 if any(outcome.passed is False for outcome in outcomes) else 0


def missing(situation: Situation) -> str:
    """Return why this machine cannot run it, nothing if it can."""
    is_root = os.geteuid() == 0
    needs_root = situation.closed_home or situation.user or situation.name == "root-below-tmp"
    if needs_root and not is_root and situation.name != "together":
        return "needs root"
    if is_root and not (shutil.which("unshare") and shutil.which("setpriv") and shutil.which("mount")):
        return "needs unshare, setpriv and mount (Debian: apt-get install util-linux mount)"
    if situation.python and not _interpreter(situation.python):
        return f"no python{situation.python} on PATH or in ~/.pyenv/versions"
    if not shutil.which("make"):
        return "no make (Debian: apt-get install make)"
    if not situation.network and not is_root and not _may_leave_network():
        return "this user may make no namespace without a network"
    return ""


def _outcome(situation: Situation, tests: tuple[str, ...], *, starts: int) -> Outcome:
    if reason := missing(situation):
        return Outcome(situation.name, None, reason)
    print(f"== {situation.name}", flush=True)
    with ExitStack() as stack:
        parent = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stranger-", dir=_above(situation))))
        parent.chmod(0o700 if situation.closed_home else 0o755)
        checkout, home = parent / situation.place, parent / "home"
        home.mkdir()
        copy_checkout(checkout)
        user = situation.user and os.geteuid() == 0
        if user:
            for path in (home, checkout, *checkout.rglob("*")):
                os.chown(path, STRANGER_ID, STRANGER_ID, follow_symlinks=False)
        make_environment(situation, checkout)
        words = _small_demo(checkout, starts) if situation.demo else ["make", "test", _asked(situation, tests)]
        log = stack.enter_context((parent / "log").open("w+b"))
        stack.enter_context(_all_cores_busy() if situation.busy else ExitStack())
        if situation.after_root:
            _run(words, checkout, home, situation, log, as_user=False)
            shutil.rmtree(checkout / ".pytest_cache", ignore_errors=True)
        started, memory = time.monotonic(), stack.enter_context(_memory_taken())
        status = _run(words, checkout, home, situation, log, as_user=user)
        seconds = time.monotonic() - started
        left = _files_left() if user else []
        log.seek(0)
        lines = log.read().decode(errors="replace").splitlines()
    told = next(
        (line for line in reversed(lines) if re.search(r"\d+ (passed|failed)|^started ", line)), f"ended with {status}"
    )
    if status:
        print("\n".join(lines[-60:]), flush=True)
    if left:
        told += f"; left in common folders: {', '.join(left[:5])}"
    return Outcome(situation.name, status == 0 and not left, told.strip("= "), seconds, max(memory))


def _above(situation: Situation) -> str:
    if not situation.closed_home:
        return tempfile.gettempdir()
    return str(Path.home())


def copy_checkout(target: Path) -> None:
    """Copy what git tracks and what it does not ignore, as it is now."""
    names = ("git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in subprocess.run(names, capture_output=True, check=True).stdout.split(b"\0"):
        source = ROOT / os.fsdecode(name)
        if name and source.exists():
            copy = target / os.fsdecode(name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy, follow_symlinks=False)


def make_environment(situation: Situation, checkout: Path) -> None:
    """Make the copy's environment: of links if this Python will do, by `make install` if it takes another."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if situation.python in (None, version):
        link_environment(checkout / ".venv")
    else:
        subprocess.run(["make", "install", f"PYTHON={_interpreter(situation.python)}"], cwd=checkout, check=True)


def _asked(situation: Situation, tests: tuple[str, ...]) -> str:
    return f"ARGS={shlex.join([*tests, *situation.args])}"


def _small_demo(checkout: Path, starts: int) -> list[str]:
    """Return what starts a demo of few models again and again, beside a scheduler that looks twenty times a second."""
    make_demo_small(checkout)
    start = 'LETHE_HOME="$HOME/demo-$n" LETHE_SWEEP_INTERVAL_S=0.05 LETHE_PORT=0 make demo ARGS=--exit || exit 1'
    loop = f'n=0; while [ $n -lt {starts} ]; do {start}; rm -rf "$HOME/demo-$n"; n=$((n+1)); done'
    return ["sh", "-c", f"{loop}; echo started {starts} times"]


def link_environment(target: Path) -> None:
    """Make a virtual environment of this one's packages, by links where the file system has them."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", target], check=True)
    source, packages = Path(sys.prefix), Path("lib", f"python{sys.version_info.major}.{sys.version_info.minor}")
    shutil.rmtree(target / packages)
    shutil.copytree(source / packages, target / packages, symlinks=True, copy_function=_link)
    own = target / packages / "site-packages"
    for path in (*own.glob("__editable__*"), *own.glob("lethe_unlearning-*.dist-info")):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for program in (source / "bin").iterdir():
        if program.is_file() and not (target / "bin" / program.name).exists():
            _copy_program(program, target / "bin" / program.name, python=target / "bin" / "python")
    words = ("-m", "pip", "install", "-qq", "--no-index", "--no-deps", "--no-build-isolation", "--editable")
    environment = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    subprocess.run([target / "bin" / "python", *words, target.parent], check=True, env=environment)
    (target / ".installed").touch()


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # another file system, or another's file
        shutil.copy2(source, target, follow_symlinks=False)


def _copy_program(source: Path, target: Path, *, python: Path) -> None:
    """Copy a program; a script's first line names its Python, and cannot hold a space."""
    content = source.read_bytes()
    if content.startswith((b"#!", b"#!/bin/sh\n'''exec'")) and b"python" in content[:300]:
        rest = content.split(b"\n' '''\n", 1)[-1] if b"\n' '''\n" in content[:500] else content.split(b"\n", 1)[1]
        first = f"#!/bin/sh\n'''exec' {shlex.quote(str(python))} \"$0\" \"$@\"\n' '''\n"
        target.write_bytes(first.encode() + rest)
        target.chmod(0o755)
    else:
        _link(str(source), str(target))


def make_demo_small(checkout: Path) -> None:
    """Let the copy's demo take seconds: few models, no reference lines."""
    file = checkout / "examples" / "demo" / "digits.toml"
    text = file.read_text()
    for key, value in {"n_models": "8", "shard_runs": "8", "baselines": "[]"}.items():
        text, found = re.subn(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
        if found != 1:
            raise ValueError(f"{file} has no line of its own for {key}")
    file.write_text(text)


def _run(words: list[str], checkout: Path, home: Path, situation: Situation, log: object, *, as_user: bool) -> int:
    inner = list(words)
    if situation.files:
        inner = ["sh", "-c", f'ulimit -Sn {situation.files} && exec "$@"', "sh", *inner]
    if as_user:
        inner = ["setpriv", f"--reuid={STRANGER_ID}", f"--regid={STRANGER_ID}", "--clear-groups", "--", *inner]
    if os.geteuid() == 0:
        network = [] if situation.network else ["--net"]
        steps = [*([] if situation.network else [_LOOPBACK_UP]), *_stranger_known(home.parent)]
        steps += _python_reachable() if as_user else []
        inner = ["unshare", "--mount", *network, "sh", "-euc", "\n".join([*steps, 'exec "$@"']), "sh", *inner]
    elif not situation.network:
        inner = [*_OWN_NETWORK, "sh", "-euc", f'{_LOOPBACK_UP}\nexec "$@"', "sh", *inner]
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    indexes = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_CERT"))}
    environment = {**kept, **indexes, "HOME": str(home)}
    return subprocess.run(
        inner, cwd=checkout, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False
    ).returncode


_OWN_NETWORK = ("unshare", "--user", "--map-current-user", "--net", "--keep-caps")
# SIOCSIFFLAGS with IFF_UP | IFF_RUNNING: not every machine has `ip`.
_UP = "import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sH14s', b'lo', 0x41, b''))"
_LOOPBACK_UP = f"{shlex.quote(sys.executable)} -c {shlex.quote(_UP)}"


def _may_leave_network() -> bool:
    done = subprocess.run([*_OWN_NETWORK, "sh", "-c", _LOOPBACK_UP], capture_output=True, check=False)
    return done.returncode == 0


def _stranger_known(folder: Path) -> list[str]:
    """Return the steps that give the stranger an account, in this run's own view of /etc."""
    steps = []
    lines = {
        "passwd": f"{STRANGER}:x:{STRANGER_ID}:{STRANGER_ID}::{folder / 'home'}:/bin/sh",
        "group": f"{STRANGER}:x:{STRANGER_ID}:",
    }
    for name, line in lines.items():
        copy = folder / name
        copy.write_text(Path("/etc", name).read_text() + line + "\n")
        steps.append(f"mount --bind {shlex.quote(str(copy))} /etc/{name}")
    return steps


def _python_reachable() -> list[str]:
    """Return the steps that show just the interpreter where it lies in a folder closed to others, such as /root."""
    base = Path(sys.base_prefix)
    closed = [parent for parent in base.parents if not parent.stat().st_mode & 0o001]
    if not closed:
        return []
    place, kept, over = (shlex.quote(str(path)) for path in (base, "/mnt", closed[-1]))
    return [
        f"mount --bind {place} {kept}",
        f"mount -t tmpfs -o mode=755,size=1m none {over}",
        f"mkdir -p {place}",
        f"mount --bind {kept} {place}",
        f"umount {kept}",
    ]


def _interpreter(version: str) -> str | None:
    if found := shutil.which(f"python{version}"):
        works = subprocess.run([found, "-c", "import venv, ensurepip"], capture_output=True, check=False)
        if works.returncode == 0:
            return found
    installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3"))
    return str(installed[-1]) if installed else None


def _files_left() -> list[str]:
    """Return what the stranger left in common folders; pytest keeps the folders of its last runs, to be looked at."""
    common = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))  # noqa: S108 - where others' files lie
    found = [path for folder in common if folder.is_dir() for path in folder.iterdir() if _is_strangers(path)]
    names = [str(path) for path in found if not path.name.startswith("pytest-of-")]
    for path in found:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
    return names


def _is_strangers(path: Path) -> bool:
    try:
        return path.lstat().st_uid == STRANGER_ID
    except FileNotFoundError:
        return False


@contextmanager
def _all_cores_busy() -> Iterator[None]:
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 2)]
    try:
        yield
    finally:
        for process in others:
            process.kill()
            process.wait()


@contextmanager
def _memory_taken() -> Iterator[list[float]]:
    """Yield a list that gets what the machine's free memory has fallen by, in GiB, each half second."""
    before, taken, ended = _available_gib(), [0.0], threading.Event()

    def look() -> None:
        while not ended.wait(0.5):
            taken.append(before - _available_gib())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield taken
    finally:
        ended.set()
        thread.join()


def _available_gib() -> float:
    found = re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())
    return int(found[1]) / (1 << 20) if found else 0.0


if __name__ == "__main__":
    if any(account.pw_uid == STRANGER_ID for account in pwd.getpwall()):
        sys.exit(f"the user id {STRANGER_ID} belongs to somebody here")
    sys.exit(main())
