"""`lethe join` and `lethe terms`: taking part where not everybody may, or terms must be accepted."""

from typing import Annotated

import typer

from lethe.cli.context import PublicCompetition, Server, Slug
from lethe.cli.output import console, local_time, print_facts
from lethe.client.api import JsonObject

YES_NO = {True: "yes", False: "no"}


def register_commands(app: typer.Typer) -> None:
    app.command()(join)
    app.command()(terms)


def join(
    server: Server,
    competition: Slug,
    *,
    token: Annotated[str | None, typer.Option("--token", help="Of a link that the organisers sent.")] = None,
    message: Annotated[str, typer.Option("--message", "-m", help="For the organisers, who accept or refuse.")] = "",
    status: Annotated[bool, typer.Option("--status", help="Only say whether something is missing.")] = False,
) -> None:
    """Take part in a competition: by a link, or by asking its organisers. Says what is missing."""
    base = f"/competitions/{competition}/participation"
    if token is not None:
        found = server.client.post(f"{base}/join", {"token": token.rpartition("token=")[2]})
    else:
        found = server.client.get(base)
        if not status and found["admission"] == "approved" and found["state"] == "none":
            found = server.client.post(f"{base}/request", {"message": message})
    server.answer(found)
    _print_standing(competition, found)


def terms(
    server: PublicCompetition,
    *,
    accept: Annotated[
        int | None, typer.Option("--accept", help="Accept this version, which you have read.", metavar="VERSION")
    ] = None,
) -> None:
    """Show a competition's terms and their version; with --accept, accept them."""
    server.needs_token = accept is not None
    slug = server.slug
    if accept is not None:
        found = server.client.post(f"/competitions/{slug}/participation/terms", {"version": accept})
    else:
        found = server.client.get(f"/competitions/{slug}/terms")
    server.answer(found)
    if accept is not None:
        _print_standing(slug, found)
    elif not found["version"]:
        console.print(f"{slug} has no terms.")
    else:
        console.print(found["text"], highlight=False, markup=False, soft_wrap=True)
        console.print(f"Version {found['version']}: accept it with: lethe terms -c {slug} --accept {found['version']}")


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
