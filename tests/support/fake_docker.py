"""`docker compose` without Docker: the part of it that scripts/smoke-compose uses, on the processes of `Compose`.

A program called `docker` hands its words and its input to the test that owns the processes; the test answers with what
the container would have said, and its status.
"""

import re
import shlex
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from tests.support.compose import Compose

WITH_VALUE = frozenset({"--env-file", "--profile", "-p", "--wait-timeout", "--tail"})
START_ORDER = ("web", "worker", "messages", "beat")
CLIENT = """import socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    given = b"" if sys.stdin.isatty() or "exec" not in sys.argv else sys.stdin.buffer.read()
    server.sendall("\\0".join(sys.argv[1:]).encode() + b"\\1" + given)
    server.shutdown(socket.SHUT_WR)
    answer = b"".join(iter(lambda: server.recv(65536), b""))
status, _, said = answer.partition(b"\\n")
sys.stdout.buffer.write(said)
sys.exit(int(status))
"""


class FakeDocker:
    """Does what the words ask with the services of the file. Keeps the words."""

    def __init__(self, compose: Compose, *, sql: Callable[[str], None], is_ready: Callable[[], bool]) -> None:
        self.compose, self._sql, self._is_ready = compose, sql, is_ready
        self.asked: list[str] = []

    def answer(self, words: list[str], given: str) -> tuple[int, str]:
        """Return the status and the output of one call."""
        self.asked.append(shlex.join(words))
        if "--env-file" in words:
            self.compose.values |= _read_settings(Path(words[words.index("--env-file") + 1]))
        try:
            return 0, self._do(_without_options(words[1:]), given)
        except Exception as error:  # as Docker tells of a container that failed
            return 1, f"{type(error).__name__}: {error}\n"

    def _do(self, words: list[str], given: str) -> str:
        command, *rest = words
        if command == "up":
            return self._up(rest or list(START_ORDER))
        if command == "stop":
            for name in rest:
                self.compose.stop(name)
            return ""
        if command == "run":
            return self._run(rest[0], rest[1:], given)
        if command == "exec" and rest[0] == "db":
            for statement in (after for word, after in pairwise(rest) if word == "--command"):
                self._sql(statement)
            return ""
        if command == "exec" and rest[0] == "proxy":  # tests/server/test_proxy.py
            return ""
        if command == "exec":
            return self._run(rest[0], rest[1:], given)
        if command in ("version", "build", "ps", "logs", "down"):
            return ""
        raise ValueError(f"docker compose {command} is not known here")

    def _up(self, names: list[str]) -> str:
        self.compose.run("migrate")
        for name in names:
            self.compose.start(name)
        if not self._is_ready():
            raise RuntimeError("not healthy: " + self.compose.log("web")[-2000:])
        return ""

    def _run(self, name: str, words: list[str], given: str) -> str:
        here = [word.replace("127.0.0.1:8000", f"127.0.0.1:{self.compose.port}") for word in words]
        return self.compose.run(name, here or None, given=given)


def _read_settings(path: Path) -> dict[str, str]:
    lines = (line for line in path.read_text().splitlines() if line and not line.startswith("#"))
    return {name: value for name, _, value in (line.partition("=") for line in lines) if value}


def _without_options(words: list[str]) -> list[str]:
    """Return Compose's command, the service and the service's own command, without Compose's options."""
    left, kept = list(words), list[str]()
    while left and len(kept) < 2:
        word = left.pop(0)
        if word in WITH_VALUE:
            left.pop(0)
        elif not word.startswith("-"):
            kept.append(word)
            if kept[0] == "stop":
                return [*kept, *left]
    return [*kept, *left]


@contextmanager
def docker_on_path(folder: Path, docker: FakeDocker) -> Iterator[Path]:
    """Yield a folder with a program called `docker` that asks `docker`."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            words, _, given = self.rfile.read().decode().partition("\1")
            status, said = docker.answer(words.split("\0"), given)
            self.wfile.write(f"{status}\n{said}".encode())

    programs = folder / "programs"
    programs.mkdir()
    client, program = programs / "client.py", programs / "docker"
    client.write_text(CLIENT.format(address=str(folder / "docker.sock")))
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -IS {shlex.quote(str(client))} "$@"\n')
    program.chmod(0o755)
    with socketserver.UnixStreamServer(str(folder / "docker.sock"), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield programs
        finally:
            server.shutdown()
            thread.join()


def database_renamed(statement: str, name: str) -> str:
    """Return a statement on the database `lethe` for the one that stands for it."""
    return re.sub(r"\blethe\b", f'"{name}"', statement)
