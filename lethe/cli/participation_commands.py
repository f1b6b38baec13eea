"""`lethe join` and `lethe team`: taking part, and your team."""

from typing import Annotated

import typer

from lethe.cli.context import Commands, InCompetition, Server, Slug, with_options
from lethe.cli.output import console, local_time, print_facts
from lethe.client.api import ApiError, JsonObject, LetheClient
from lethe.errors import NotFound

YES_NO = {True: "yes", False: "no"}


commands = Commands(help="Show, create or join a team.", invoke_without_command=True)


def register_commands(app: typer.Typer) -> None:
    app.command("join")(take_part)
    app.add_typer(commands, name="team")


def take_part(
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


@commands.callback()
@with_options
def show(server: InCompetition, context: typer.Context) -> None:
    """Show your team, or with one of the commands below make or join one."""
    if context.invoked_subcommand is not None:
        return
    _print(server, _own_team(server.client, server.slug))


@commands.command()
def create(server: InCompetition, name: Annotated[str, typer.Argument(help="Its name on the leaderboard.")]) -> None:
    """Create a team and lead it."""
    _print(server, server.client.create_team(server.slug, name))


@commands.command()
def invite(
    server: InCompetition,
    name: Annotated[
        str | None, typer.Argument(help="An account name. Without it: create a link for one person.")
    ] = None,
) -> None:
    """Invite a person to your team (for its leader)."""
    found = server.client.post(f"/competitions/{server.slug}/team/invitations", {"name": name})
    server.answer(found)
    said = f"lethe team join {found['token']}" if found.get("token") else f"{name} accepts with: lethe team join"
    console.print(f"Invited until {local_time(found['expires_at'])}. {said}", highlight=False)


@commands.command()
def join(
    server: InCompetition,
    token: Annotated[
        str | None, typer.Argument(help="A link's token or an invitation's id. Default: your only invitation.")
    ] = None,
) -> None:
    """Join a team that invited you. With several invitations by name, lists them."""
    base = f"/competitions/{server.slug}"
    mine = server.client.get(f"{base}/invitations")
    if token is None or token in {item["id"] for item in mine}:
        found = server.client.post(f"{base}/invitations/{token or _only(mine)}/accept")
    else:
        found = server.client.post(f"{base}/team/join", {"token": token})
    _print(server, found)


def _only(invitations: list[JsonObject]) -> str:
    if len(invitations) != 1:
        teams = ", ".join(f"{item['id']} ({item['team']})" for item in invitations) or "there is none"
        raise NotFound(f"Say which invitation to accept: {teams}")
    return str(invitations[0]["id"])


def _own_team(client: LetheClient, slug: str) -> JsonObject:
    try:
        return client.team(slug)
    except ApiError as error:
        if error.http_status != 404:
            raise
        raise NotFound(
            f"You are in no team of {slug}. Your first submission makes one of you alone; "
            "`lethe team create NAME` names it."
        ) from error


def _print(server: InCompetition, found: JsonObject) -> None:
    server.answer(found)
    print_facts((("team", found["name"]), ("leader", found["leader"]), ("members", ", ".join(found["members"]))))
