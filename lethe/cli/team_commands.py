"""`lethe team …`: your team."""

from typing import Annotated

import typer

from lethe.cli.context import Commands, InCompetition, with_options
from lethe.cli.output import console, local_time, print_facts, print_rows
from lethe.client.api import ApiError, JsonObject, LetheClient
from lethe.errors import InvalidInput, NotFound

commands = Commands(help="Show, create, join or leave a team.", invoke_without_command=True)


def register_commands(app: typer.Typer) -> None:
    app.add_typer(commands, name="team")


@commands.callback()
@with_options
def show(server: InCompetition, context: typer.Context) -> None:
    """Show your team, or with one of the commands below make, join, merge or leave one."""
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


@commands.command()
def invitations(server: InCompetition) -> None:
    """List the invitations to you."""
    found = server.client.get(f"/competitions/{server.slug}/invitations")
    server.answer(found)
    print_rows(found, {"id": "id", "team": "team", "until": "expires_at"}, empty="Nobody has invited you.")


@commands.command()
def leave(server: InCompetition) -> None:
    """Leave your team. Not possible once the team has submitted."""
    server.client.post(f"/competitions/{server.slug}/team/leave")
    server.answer({"competition": server.slug, "left": True})
    console.print("Left.")


@commands.command()
def merge(
    server: InCompetition,
    team: Annotated[
        str | None, typer.Argument(help="The team that yours is to become part of. Without it: list the requests.")
    ] = None,
    *,
    agree: Annotated[
        str | None, typer.Option("--agree", help="Take this team, which asked, into yours.", metavar="TEAM")
    ] = None,
    refuse: Annotated[
        str | None, typer.Option("--refuse", help="Turn this team's request down, or withdraw yours.", metavar="TEAM")
    ] = None,
) -> None:
    """Ask that your team becomes part of another, or answer such a request (for leaders)."""
    if sum(each is not None for each in (team, agree, refuse)) > 1:
        raise InvalidInput("name a team to ask, or one of --agree and --refuse, not several")
    base = f"/competitions/{server.slug}/team/merges"
    if team is not None:
        found = server.client.post(base, {"team": team})
    elif agree is not None:
        found = server.client.post(f"{base}/{_request_id(server.client, base, agree, side='team')}/agree")
    elif refuse is not None:
        server.client.delete(f"{base}/{_request_id(server.client, base, refuse, side='either')}")
        found = {"refused": refuse}
    else:
        found = server.client.get(base)
    server.answer(found)
    if agree is not None:
        _print(server, found)
    elif team is not None:
        console.print(f"Asked. The leader of {team} agrees with: lethe team merge --agree {found['team']!r}")
    elif refuse is not None:
        console.print("The request is gone.")
    else:
        columns = {"team": "team", "into": "into", "asked": "created_at"}
        print_rows(found, columns, empty="There is no request to merge.")


def _request_id(client: LetheClient, base: str, name: str, *, side: str) -> str:
    """Return the request from the team called `name`, or with side="either" also the one to it."""
    requests = client.get(base)
    sides = ("team", "into") if side == "either" else (side,)
    found = [item["id"] for item in requests if any(item[each].casefold() == name.casefold() for each in sides)]
    if not found:
        there = ", ".join(f"{item['team']} into {item['into']}" for item in requests) or "there is none"
        raise NotFound(f"No such request to merge of {name!r}; requests: {there}")
    return str(found[0])


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
