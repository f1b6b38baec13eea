"""Where the private Redis of a folder listens. Apart from what starts it, since every command reads the settings."""

import hashlib
import os
import tempfile
from pathlib import Path

# sun_path holds 108 bytes with its closing NUL; some systems have 104.
MAX_SOCKET_PATH = 100


def socket_path(folder: Path) -> Path:
    """Return where the socket of `folder` lies: inside it, or in a private short folder if that name is too long."""
    inside = folder.absolute() / "redis.sock"
    if len(os.fsencode(inside)) <= MAX_SOCKET_PATH:
        return inside
    digest = hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"lethe-{os.getuid()}-{digest}" / "redis.sock"
