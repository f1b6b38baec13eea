"""A TCP proxy on loopback that can stop forwarding: connections stay open, new ones are taken, and nothing answers."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class BlackHole:
    """Forwards to a TCP port of loopback or to a unix socket, until it is `silent`."""

    def __init__(self, target: int | Path) -> None:
        self._target = target
        self._forwards = threading.Event()
        self._forwards.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._accepts = threading.Thread(target=self._accept, daemon=True)
        self._accepts.start()

    @contextmanager
    def silent(self) -> Iterator[None]:
        self._forwards.clear()
        try:
            yield
        finally:
            self._forwards.set()

    def close(self) -> None:
        self._forwards.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepts.join()

    def _accept(self) -> None:
        with self._listener, suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            self._forwards.wait()
            with self._connect() as target:
                back = threading.Thread(target=self._forward, args=(target, client), daemon=True)
                back.start()
                self._forward(client, target)
                back.join()

    def _connect(self) -> socket.socket:
        if isinstance(self._target, int):
            return socket.create_connection(("127.0.0.1", self._target))
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self._target))
        return connection

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self._forwards.wait()
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def black_hole(target: int | Path) -> Iterator[BlackHole]:
    proxy = BlackHole(target)
    try:
        yield proxy
    finally:
        proxy.close()
