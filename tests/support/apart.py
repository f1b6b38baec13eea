"""What keeps a test process apart: its own folder, no network, its own signals, a day that lasts; its browser."""

import atexit
import os
import re
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import Any

OF_THIS_MACHINE = re.compile(r"127(\.\d+){3}|::1|localhost|")
NEEDS_NO_ANSWER = re.compile(r"[0-9a-fx.:]*|localhost", re.IGNORECASE)  # an address, in any way of writing it


def own_folder() -> None:
    """Make the folder that this process, and what it starts, keeps its temporary files in; it goes with the process.

    The folder of a process that another test process has started lies below the other's, which thus also removes what
    a killed process leaves; pytest-xdist kills one that takes more than ten seconds to end. Servers run as `nobody`
    below it when we are root, and a unix socket's path is short: so neither closed nor deep. pytest's own folders,
    which outlive a run to be looked at, stay where they were.
    """
    prefix = "t-" if "PYTEST_DEBUG_TEMPROOT" in os.environ else "lethe-tests-"
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    folder.chmod(0o711)
    atexit.register(_remove, folder, owner=os.getpid())
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)


def refuse_network() -> None:
    """Raise RuntimeError where this process asks for a name or a connection beyond this machine.

    What it starts finds a proxy that refuses, and an index that holds nothing. This is no audit hook: before Python
    3.12 one that is written in Python lets a thread fail to start while coverage traces another.
    """
    for name in ("connect", "connect_ex"):
        setattr(socket.socket, name, _only_to(OF_THIS_MACHINE, getattr(socket.socket, name), host=_host_of_address))
    for name in ("getaddrinfo", "gethostbyname", "gethostbyname_ex"):
        setattr(socket, name, _only_to(NEEDS_NO_ANSWER, getattr(socket, name), host=_first))
    os.environ |= {f"{scheme}_proxy": "http://127.0.0.1:9" for scheme in ("http", "https", "all")}
    os.environ |= {"no_proxy": "127.0.0.1,localhost,::1", "PIP_NO_INDEX": "1", "HF_HUB_OFFLINE": "1"}


def may_be_interrupted() -> None:
    """Let SIGINT end what tests start, also where a shell has started us in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _remove(folder: Path, *, owner: int) -> None:
    if os.getpid() == owner:  # not a fork of it, which may end sooner
        shutil.rmtree(folder, ignore_errors=True)


def _only_to(allowed: re.Pattern[str], function: Callable[..., Any], *, host: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def checked(*arguments: Any, **named: Any) -> Any:
        asked = host(*arguments, **named)
        if isinstance(asked, str) and asked != socket.gethostname() and not allowed.fullmatch(asked):
            raise RuntimeError(f"a test asks the network: {function.__name__} {asked}")
        return function(*arguments, **named)

    return checked


def _host_of_address(_socket: socket.socket, address: Any) -> Any:
    return address[0] if isinstance(address, tuple) else None  # a path, of a unix socket


def _first(host: Any, *_others: Any, **_named: Any) -> Any:
    return host


# Quotas and budgets count by the UTC day: a test of them must not begin in one day and end in the next.
TAKES_S = 30.0
TAKE_LONGER_S = {"tests/end_to_end/test_played_competition.py": 400.0}


def day_needed_s(nodeid: str) -> float:
    """Return how long the day must last yet when this test begins, seconds."""
    return next((needed for file, needed in TAKE_LONGER_S.items() if nodeid.startswith(file)), TAKES_S)


def until_next_day_s(at: datetime, *, needed_s: float) -> float:
    """Return how long to wait for a day that lasts long enough, seconds: nothing, or until midnight UTC."""
    midnight = (at + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    left_s = (midnight - at).total_seconds()
    return left_s if left_s < needed_s else 0.0


# The shell first: the same engine without the browser's own windows, whose drawing takes a third of the time.
CHROMIUM_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str | None:
    """Return the path of the system's Chromium, or None."""
    return next((path for name in CHROMIUM_NAMES if (path := shutil.which(name))), None)
