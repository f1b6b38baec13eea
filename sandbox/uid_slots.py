"""Which user a sandbox runs as: root drops to a slot's own user, everybody else stays who they are."""

import fcntl
import os
import tempfile
from pathlib import Path

from sandbox.errors import NoFreeSlot

FIRST_SLOT_UID = 60_800  # with the 255 above it assigned to nobody by systemd's and Debian's tables
SLOTS = 256


class Slot:
    """A user id that no other sandbox on this host has while this one is open."""

    def __init__(self, number: int, lock_fd: int) -> None:
        self.number = number
        self._lock_fd = lock_fd

    @property
    def uid(self) -> int:
        return FIRST_SLOT_UID + self.number

    def release(self) -> None:
        """Give the slot back; the lock also goes when the process does."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


def take_slot(number: int | None = None) -> Slot | None:
    """Return the slot `number`, or the first free one; None where the launcher is not root.

    Raises NoFreeSlot if it is, or all are, in use.
    """
    if os.geteuid() != 0:
        return None
    if number is not None and not 0 <= number < SLOTS:
        raise NoFreeSlot(f"a slot is a number from 0 to {SLOTS - 1}, not {number}")
    folder = _lock_folder()
    for candidate in range(SLOTS) if number is None else (number,):
        fd = os.open(folder / str(candidate), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            continue
        return Slot(candidate, fd)
    wanted = "every slot is" if number is None else f"slot {number} is"
    raise NoFreeSlot(f"{wanted} in use on this host; close a sandbox, or give each worker its own slot")


def _lock_folder() -> Path:
    base = Path("/run") if Path("/run").is_dir() else Path(tempfile.gettempdir())
    folder = base / "lethe-sandbox-slots"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != 0 or folder.is_symlink():
        raise NoFreeSlot(f"{folder} must be a folder of root's own")
    return folder
