"""Files of an instance are for its own user: the database holds password hashes, the storage the seeds of splits.

Every process of an instance begins here, by `instance_settings` or `keep_private`.
"""

import os
import stat
from pathlib import Path

import structlog

from lethe.errors import HostFault
from server.config import Settings, get_settings
from server.environment import unknown_variables

log = structlog.get_logger()

PRIVATE = 0o077  # what others may not do, as a mask
OF_AN_INSTANCE = frozenset(
    {"lethe.db", "secret_key", "instance.lock", "storage", "redis", "logs", "scratch", "datasets"}
)


def instance_settings() -> Settings:
    """Return this process's settings, from which its files, and those of what it starts, are private."""
    settings = get_settings()
    for sentence in unknown_variables(os.environ, Settings.model_fields):
        log.warning(sentence)
    keep_private(settings.home)
    return settings


def keep_private(home: Path) -> None:
    """Create files for this user only, and close the home folder. Raises HostFault if it is not ours alone."""
    os.umask(PRIVATE)
    home = home.absolute()
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = home.stat()
    if not status.st_mode & PRIVATE:
        return
    if status.st_uid != os.geteuid() or status.st_mode & stat.S_ISVTX or not _is_of_an_instance(home):
        raise HostFault(
            f"LETHE_HOME={home} can be entered by other users (mode {stat.S_IMODE(status.st_mode):04o}), who could "
            f"read password hashes and hidden data there: run `chmod 700 {home}` as its owner, or choose another folder"
        )
    home.chmod(0o700)
    for path in home.iterdir():
        if path.is_file() and not path.is_symlink():
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~PRIVATE)
    log.warning("the home folder was open to other users and is private now", home=str(home))


def _is_of_an_instance(home: Path) -> bool:
    names = {path.name for path in home.iterdir()}
    return not names or not names.isdisjoint(OF_AN_INSTANCE)
