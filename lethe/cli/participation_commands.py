"""`lethe join` and `lethe terms`: taking part where not everybody may, or terms must be accepted."""

from typing import Annotated

import typer

from lethe.cli.context import Competition, Json, Slug, Url, chosen_competition, connected
from lethe.cli.output import console, local_time, print_facts, print_json
from lethe.client.api import JsonObject

YES_NO = {True: "yes", False: "no"}


def register_commands(app: typer.Typer) -> None:
    app.command()(join)
    app.command()(terms)


def join(
    competition: Slug,
    *,
    token: Annotated[str | None, typer.Option("--token", help="Of a link that the organisers sent.")] = None,
    message: Annotated[str, typer.Option("--message", "-m", help="For the organisers, who accept or refuse.")] = "",
    status: Annotated[bool, typer.Option("--status", help="Only say whether something is missing.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Take part in a competition: by a link, or by asking its organisers. Says what is missing."""
    with connected(url) as client:
        base = f"/competitions/{competition}/participation"
        if token is not None:
            found = client.post(f"{base}/join", {"token": token.rpartition("token=")[2]})
        else:
            found = client.get(base)
            if not status and found["admission"] == "approved" and found["state"] == "none":
                found = client.post(f"{base}/request", {"message": message})
    if as_json:
        print_json(found)
        return
    _print_standing(competition, found)


def terms(
    competition: Competition = None,
    *,
    accept: Annotated[
        int | None, typer.Option("--accept", help="Accept this version, which you have read.", metavar="VERSION")
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show a competition's terms and their version; with --accept, accept them."""
    with connected(url, anonymous=accept is None) as client:
        slug = chosen_competition(client, competition)
        if accept is not None:
            found = client.post(f"/competitions/{slug}/participation/terms", {"version": accept})
        else:
            found = client.get(f"/competitions/{slug}/terms")
    if as_json:
        print_json(found)
    elif accept is not None:
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
