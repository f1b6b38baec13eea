"""`lethe team …`: your team."""

from typing import Annotated

import typer

from lethe.cli.context import Competition, Json, Url, chosen_competition, connected
from lethe.cli.output import console, local_time, print_facts, print_json, print_table
from lethe.client.api import ApiError, JsonObject, LetheClient
from lethe.errors import InvalidInput, NotFound

commands = typer.Typer(help="Show, create, join or leave a team.", invoke_without_command=True)


def register_commands(app: typer.Typer) -> None:
    app.add_typer(commands, name="team")


@commands.callback()
def show(context: typer.Context, competition: Competition = None, url: Url = None, as_json: Json = False) -> None:
    """Show your team, or with one of the commands below make, join, merge or leave one."""
    if context.invoked_subcommand is not None:
        return
    with connected(url) as client:
        found = _own_team(client, chosen_competition(client, competition))
    _print(found, as_json=as_json)


@commands.command()
def create(
    name: Annotated[str, typer.Argument(help="Its name on the leaderboard.")],
    competition: Competition = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Create a team and lead it."""
    with connected(url) as client:
        found = client.create_team(chosen_competition(client, competition), name)
    _print(found, as_json=as_json)


@commands.command()
def invite(
    name: Annotated[
        str | None, typer.Argument(help="An account name. Without it: create a link for one person.")
    ] = None,
    competition: Competition = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Invite a person to your team (for its leader)."""
    with connected(url) as client:
        slug = chosen_competition(client, competition)
        found = client.post(f"/competitions/{slug}/team/invitations", {"name": name})
    if as_json:
        print_json(found)
        return
    said = f"lethe team join {found['token']}" if found.get("token") else f"{name} accepts with: lethe team join"
    console.print(f"Invited until {local_time(found['expires_at'])}. {said}", highlight=False)


@commands.command()
def join(
    token: Annotated[
        str | None, typer.Argument(help="A link's token or an invitation's id. Default: your only invitation.")
    ] = None,
    competition: Competition = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Join a team that invited you. With several invitations by name, lists them."""
    with connected(url) as client:
        slug = chosen_competition(client, competition)
        mine = _invitations(client, slug)
        if token is None or token in {item["id"] for item in mine}:
            found = client.post(f"/competitions/{slug}/invitations/{token or _only(mine)}/accept")
        else:
            found = client.post(f"/competitions/{slug}/team/join", {"token": token})
    _print(found, as_json=as_json)


@commands.command()
def invitations(competition: Competition = None, url: Url = None, as_json: Json = False) -> None:
    """List the invitations to you."""
    with connected(url) as client:
        found = _invitations(client, chosen_competition(client, competition))
    if as_json:
        print_json(found)
        return
    rows = ((item["id"], item["team"], local_time(item["expires_at"])) for item in found)
    print_table("", ("id", "team", "until"), rows, empty="Nobody has invited you.")


@commands.command()
def leave(competition: Competition = None, url: Url = None, as_json: Json = False) -> None:
    """Leave your team. Not possible once the team has submitted."""
    with connected(url) as client:
        slug = chosen_competition(client, competition)
        client.post(f"/competitions/{slug}/team/leave")
    if as_json:
        print_json({"competition": slug, "left": True})
        return
    console.print("Left.")


@commands.command()
def merge(
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
    competition: Competition = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Ask that your team becomes part of another, or answer such a request (for leaders)."""
    if sum(each is not None for each in (team, agree, refuse)) > 1:
        raise InvalidInput("name a team to ask, or one of --agree and --refuse, not several")
    with connected(url) as client:
        base = f"/competitions/{chosen_competition(client, competition)}/team/merges"
        if team is not None:
            found = client.post(base, {"team": team})
        elif agree is not None:
            found = client.post(f"{base}/{_request_id(client, base, agree, side='team')}/agree")
        elif refuse is not None:
            client.delete(f"{base}/{_request_id(client, base, refuse, side='either')}")
            found = {"refused": refuse}
        else:
            found = client.get(base)
    if as_json:
        print_json(found)
    elif agree is not None:
        _print(found, as_json=False)
    elif team is not None:
        console.print(f"Asked. The leader of {team} agrees with: lethe team merge --agree {found['team']!r}")
    elif refuse is not None:
        console.print("The request is gone.")
    else:
        rows = ((item["team"], item["into"], local_time(item["created_at"])) for item in found)
        print_table("", ("team", "into", "asked"), rows, empty="There is no request to merge.")


def _request_id(client: LetheClient, base: str, name: str, *, side: str) -> str:
    """Return the request from the team called `name`, or with side="either" also the one to it."""
    requests = client.get(base)
    sides = ("team", "into") if side == "either" else (side,)
    found = [item["id"] for item in requests if any(item[each].casefold() == name.casefold() for each in sides)]
    if not found:
        there = ", ".join(f"{item['team']} into {item['into']}" for item in requests) or "there is none"
        raise NotFound(f"No such request to merge of {name!r}; requests: {there}")
    return str(found[0])


def _invitations(client: LetheClient, slug: str) -> list[JsonObject]:
    found: list[JsonObject] = client.get(f"/competitions/{slug}/invitations")
    return found


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


def _print(found: JsonObject, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    print_facts((("team", found["name"]), ("leader", found["leader"]), ("members", ", ".join(found["members"]))))
