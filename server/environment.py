"""What the environment says wrongly: variables that nothing reads, values that a setting cannot have, paths that are
too long for a socket. How many files this process may open."""

import difflib
import hashlib
import os
import resource
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from pydantic import ValidationError

ENOUGH_FILES = 65_536  # some programs go through every number up to the limit when they start


def raise_open_files_limit() -> None:
    """Let this process and what it starts open as many files as the system allows it, up to what is enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(hard, ENOUGH_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


# sun_path holds 108 bytes with its closing NUL; some systems have 104.
MAX_SOCKET_PATH = 100


def socket_path(folder: Path) -> Path:
    """Return where the socket of `folder` lies: inside it, or in a private short folder if that name is too long."""
    inside = folder.absolute() / "redis.sock"
    if len(os.fsencode(inside)) <= MAX_SOCKET_PATH:
        return inside
    digest = hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"lethe-{os.getuid()}-{digest}" / "redis.sock"


PREFIX = "LETHE_"
READ_ELSEWHERE = frozenset(  # read elsewhere than in the settings: by commands, sandboxes, compose
    PREFIX + name
    for name in ("TOKEN", "URL", "COMPETITION", "WORKER_TOKEN", "TRUST_NETWORK_SOURCE", "BACKUPS", "APPARMOR")
)
TESTS = f"{PREFIX}TEST_"


def unknown_variables(environment: Mapping[str, str], settings: Collection[str]) -> list[str]:
    """Return a sentence for every variable LETHE_* that nothing reads, with the nearest name of a setting."""
    known = {PREFIX + name.upper() for name in settings} | READ_ELSEWHERE
    unknown = []
    for name in sorted(environment):
        upper = name.upper()
        if not upper.startswith(PREFIX) or upper.startswith(TESTS) or upper in known:
            continue
        near = difflib.get_close_matches(upper, sorted(known), n=1)
        meant = f"did you mean {near[0]}?" if near else "docs/operators/settings.md lists what there is."
        unknown.append(f"{name} is no setting and changes nothing: {meant}")
    return unknown


def describe_wrong_values(error: ValidationError, *, shown: bool = True) -> str:
    """Return what is wrong with settings, by variable; no secret is repeated, without `shown` no value."""
    said = []
    for fault in error.errors():
        name = PREFIX + str(fault["loc"][0]).upper() if fault["loc"] else ""
        message = fault["msg"].removeprefix("Value error, ")
        value = f"={fault['input']:.80}" if shown and isinstance(fault["input"], str) and not _is_secret(name) else ""
        said.append(f"{name}{value}: {message}" if name else message)
    return "; ".join(said)


def _is_secret(name: str) -> bool:
    return any(word in name for word in ("SECRET", "PASSWORD", "TOKEN", "_URL"))
