"""What most commands share: which server, and which competition."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from lethe.cli import client_config
from lethe.client.api import ApiError, LetheClient, NotLoggedIn
from lethe.errors import InvalidInput

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


@contextmanager
def connected(url: str | None = None, *, anonymous: bool = False) -> Iterator[LetheClient]:
    """Yield a client with the caller's token. Raises NotLoggedIn, saying what to do, if there is none."""
    address = client_config.server_url(url)
    token = client_config.get_token(address)
    if token is None and not anonymous:
        raise NotLoggedIn(f"There is no token for {address}. Run `lethe login`, or set {client_config.TOKEN_VARIABLE}.")
    with LetheClient(address, token=token) as client:
        try:
            yield client
        except ApiError as error:
            if error.http_status == NotLoggedIn.http_status and token is not None:
                raise NotLoggedIn(f"{address} does not take this token. Run `lethe login` again.") from error
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
