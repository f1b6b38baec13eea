"""What several benchmarks need: their options, and PostgreSQL."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.postgres import PostgresServer


def options(doc: str | None, **named: Any) -> argparse.Namespace:
    """Parse the command line. named: each option's default."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in named.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(default, list):
            parser.add_argument(flag, nargs="+", type=type(default[0]), default=default)
        else:
            parser.add_argument(flag, type=type(default), default=default)
    return parser.parse_args()


@contextmanager
def postgres() -> Iterator[PostgresServer]:
    """A server that runs until the end."""
    server = PostgresServer()
    server.start()
    try:
        yield server
    finally:
        server.remove()
