"""Ports on loopback."""

import atexit
import random
import socket
from pathlib import Path

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_000
_taken: list[socket.socket] = []  # one for each port, for as long as this process lives


def free_port() -> int:
    """Return a port that nobody listens on now, and that nobody is given before this process has ended.

    Not one of those that the kernel gives to outgoing connections: one of many that other tests open could take it
    before its server has started. No other test process is given it either: a socket without a file says so.
    """
    highest = int(_EPHEMERAL.read_text().split()[0]) - 1 if _EPHEMERAL.exists() else 30_000
    for port in random.SystemRandom().sample(range(_LOWEST, highest), 1000):
        mark = socket.socket(socket.AF_UNIX)
        try:
            mark.bind(f"\0lethe-test-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            mark.close()
            continue
        _taken.append(mark)
        atexit.register(mark.close)
        return port
    raise RuntimeError(f"no port between {_LOWEST} and {highest} is free")
