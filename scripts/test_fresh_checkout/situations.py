"""The situations that the tests are run in, and what of each this machine allows."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

# What a machine, a user or a place once changed the outcome of.
CHOSEN = (
    "tests/golden/test_check.py",
    "tests/lethe/runtime/test_entry_environment.py",
    "tests/sandbox/test_visibility.py",
    "tests/server/cli/test_demo.py",
    "tests/server/embedded/test_redis.py",
    "tests/server/test_crowd.py::test_thousand_requests_at_once_are_all_answered_in_turn",
    "tests/server/test_storage.py",
    "tests/test_compose_processes.py::test_service_has_users_mounts_and_limits_of_the_file",
    "tests/test_scripts.py",
    "tests/test_fixtures.py",
)
# What root runs first, so that it has left what servers and notebooks leave.
BEFORE = (
    "tests/lethe/runtime/test_entry_environment.py",
    "tests/sandbox/test_visibility.py",
    "tests/server/embedded/test_redis.py",
    "tests/server/test_storage.py",
)


@dataclass(frozen=True)
class Situation:
    """How the tests are run.

    user: as an ordinary user. closed_home: below a folder of mode 0700. place: the checkout's folder. files: the soft
    limit of open files. after_root: root has run some tests before, and left what they leave. python: another version.
    demo: a small one, again and again, not the tests.
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
    random_order: bool = False
    demo: bool = False

    def covers(self) -> str:
        """Return in words what is unusual."""
        words = {
            "an ordinary user": self.user,
            "after root": self.after_root,
            f"in {self.place!r}": self.place != "lethe",
            "below a home of mode 0700": self.closed_home,
            f"{self.files} open files": self.files,
            "no network": not self.network,
            "all cores busy": self.busy,
            "random order": self.random_order,
            f"Python {self.python}": self.python,
            "the demo again and again": self.demo,
        }
        return ", ".join(word for word, holds in words.items() if holds) or "in the temporary folder"


# Together they are every unusual thing once, in three runs.
COMBINED = (
    Situation("busy", busy=True, random_order=True),
    Situation("together", user=True, place="my Größe", files=1024, network=False, after_root=True),
    Situation("closed-home", closed_home=True, python="3.13"),
)
SINGLE = (
    Situation("plain"),
    Situation("user", user=True),
    Situation("path-with-space", place="my clone"),
    Situation("path-beyond-ascii", place="Größe"),
    Situation("few-open-files", files=1024),
    Situation("no-network", network=False),
    Situation("busy-cores", busy=True),
    Situation("leftovers-of-root", user=True, after_root=True),
    Situation("random-order", random_order=True),
    *(Situation(f"python-{version}", python=version) for version in ("3.11", "3.12", "3.13", "3.14")),
    Situation("demo", demo=True),
)


def allowed(wanted: Situation) -> tuple[Situation | None, tuple[str, ...]]:
    """Return what of the situation this machine allows, None if nothing, and why the rest is left out."""
    if reason := _missing():
        return None, (reason,)
    situation, left_out = wanted, []
    if os.geteuid() != 0:
        situation = replace(situation, user=False, after_root=False)
        if wanted.after_root:
            left_out.append("what root leaves behind: needs root")
        if not wanted.network and not _may_leave_network():
            situation = replace(situation, network=True)
            left_out.append("no network: this user may make no namespace without one")
    if wanted.python and not interpreter(wanted.python):
        situation = replace(situation, python=None)
        left_out.append(f"Python {wanted.python}: none on PATH or in ~/.pyenv/versions")
    if left_out and situation == Situation(wanted.name):
        return None, tuple(left_out)
    return situation, tuple(left_out)


def _missing() -> str:
    if not shutil.which("make"):
        return "no make (Debian: apt-get install make)"
    if os.geteuid() == 0 and not all(map(shutil.which, ("unshare", "setpriv", "mount"))):
        return "needs unshare, setpriv and mount (Debian: apt-get install util-linux mount)"
    return ""


def interpreter(version: str) -> str | None:
    """Return the program that is this Python, None if there is none that can make an environment."""
    if re.match(rf"{version}\.", sys.version):
        return sys.executable
    if found := shutil.which(f"python{version}"):
        works = subprocess.run([found, "-c", "import venv, ensurepip"], capture_output=True, check=False)
        if works.returncode == 0:
            return found
    installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3"))
    return str(installed[-1]) if installed else None


OWN_NETWORK = ("unshare", "--user", "--map-current-user", "--net", "--keep-caps")
# SIOCSIFFLAGS with IFF_UP | IFF_RUNNING: not every machine has `ip`.
_UP = "import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sH14s', b'lo', 0x41, b''))"
LOOPBACK_UP = f"{shlex.quote(sys.executable)} -c {shlex.quote(_UP)}"


def _may_leave_network() -> bool:
    done = subprocess.run([*OWN_NETWORK, "sh", "-c", LOOPBACK_UP], capture_output=True, check=False)
    return done.returncode == 0
