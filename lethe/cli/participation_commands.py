"""`lethe join`: taking part where not everybody may, or terms must be accepted."""

from typing import Annotated

import typer

from lethe.cli.context import Server, Slug
from lethe.cli.output import local_time, print_facts
from lethe.client.api import JsonObject

YES_NO = {True: "yes", False: "no"}


def register_commands(app: typer.Typer) -> None:
    app.command()(join)


def join(
    server: Server,
    competition: Slug,
    *,
    token: Annotated[str | None, typer.Option("--token", help="Of a link that the organisers sent.")] = None,
    message: Annotated[str, typer.Option("--message", "-m", help="For the organisers, who accept or refuse.")] = "",
    accept: Annotated[
        int | None, typer.Option("--accept", help="Accept this version of the terms.", metavar="VERSION")
    ] = None,
    status: Annotated[bool, typer.Option("--status", help="Only say whether something is missing.")] = False,
) -> None:
    """Take part in a competition: by a link, or by asking its organisers. Says what is missing.

    `lethe api GET /competitions/NAME/terms` shows its terms.
    """
    base = f"/competitions/{competition}/participation"
    if accept is not None:
        found = server.client.post(f"{base}/terms", {"version": accept})
    elif token is not None:
        found = server.client.post(f"{base}/join", {"token": token.rpartition("token=")[2]})
    else:
        found = server.client.get(base)
        if not status and found["admission"] == "approved" and found["state"] == "none":
            found = server.client.post(f"{base}/request", {"message": message})
    server.answer(found)
    _print_standing(competition, found)


def _print_standing(slug: str, found: JsonObject) -> None:
    print_facts(
        (
            ("competition", slug),
            ("you may take part", YES_NO[found["may_take_part"]]),
            ("admission", f"{found['state']} ({found['admission']})"),
            ("reason", found["reason"] or None),
            ("terms", f"version {found['terms_version']}" if found["terms_version"] else "none"),
            ("accepted", local_time(found["accepted_at"]) if found["accepted_at"] else None),
            ("address", "must be confirmed" if found["lacks_address"] else None),
            ("account", "somebody in a team has your address" if found["shares_address"] else None),
        )
    )
