"""What most commands share: which server, which competition, and how to print."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from lethe.cli import client_config
from lethe.cli.terminal import Terminal
from lethe.client.api import ApiError, LetheClient
from lethe.errors import InvalidInput, NotAuthenticated

WHOLE = frozenset(
    {"id", "action", "subject", "received"}
)  # columns to copy from: where there is no room, others are narrowed
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Url = Annotated[
    str | None,
    typer.Option("--url", help="The server's URL. Default: LETHE_URL, else the last log-in's."),
]
Competition = Annotated[
    str | None,
    typer.Option("--competition", "-c", help="The competition's name. Default: LETHE_COMPETITION, else the kit's."),
]
Slug = Annotated[str, typer.Argument(help="The competition's name.", metavar="COMPETITION")]

console = Terminal()
notes = Terminal(stderr=True)


@contextmanager
def connected(url: str | None = None, *, anonymous: bool = False) -> Iterator[LetheClient]:
    """Yield a client with the caller's token. Raises NotAuthenticated, saying what to do, if there is none."""
    address = client_config.server_url(url)
    token = client_config.get_token(address)
    if token is None and not anonymous:
        raise NotAuthenticated(
            f"There is no token for {address}. Run `lethe login`, or set {client_config.TOKEN_VARIABLE}."
        )
    with LetheClient(address, token=token) as client:
        try:
            yield client
        except ApiError as error:
            if error.http_status == NotAuthenticated.status and token is not None:
                raise NotAuthenticated(f"{address} does not take this token. Run `lethe login` again.") from error
            raise


def chosen_competition(client: LetheClient, given: str | None) -> str:
    """Return the competition that is meant: named, remembered, or the only one there is."""
    if found := given or client_config.default_competition():
        return found
    slugs = [competition["slug"] for competition in client.competitions()]
    if len(slugs) == 1:
        return str(slugs[0])
    there = ", ".join(slugs) or "none that you may see"
    raise InvalidInput(f"Say which competition with --competition; there are: {there}")


def print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Print a table; columns whose name ends in # are aligned to the right."""
    filled = list(rows)
    if not filled:
        console.print(empty)
        return
    table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for column in columns:
        name = column.rstrip("#")
        table.add_column(name, justify="right" if column.endswith("#") else "left", no_wrap=name in WHOLE)
    for row in filled:
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))  # not as markup: strangers' words
    console.print(table)


def print_notes(texts: Sequence[str]) -> None:
    """Print what may make a submission fail."""
    for text in texts:
        console.print(f"Note: {text}", style="yellow", markup=False, highlight=False)


def print_facts(facts: Iterable[tuple[str, object]]) -> None:
    """Print names and values in two columns, leaving out what has no value."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in facts:
        if value not in (None, ""):
            table.add_row(name, Text(str(value)))
    console.print(table)


def local_time(text: str | None) -> str:
    """Return a timestamp of the server's in the reader's own zone."""
    if not text:
        return ""
    try:
        return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M %Z")
    except OverflowError:  # in the last hours of the year 9999
        return text


def score_text(score: float | None) -> str:
    return "" if score is None else f"{score:.6f}"
