"""`lethe worker-token …`: which machines of an organiser's own may run a competition's shards."""

from typing import Annotated

import typer

from lethe.cli.context import Competition, Json, Url, chosen_competition, connected
from lethe.cli.output import console, local_time, notes, print_json, print_table

commands = typer.Typer(help="Attach your own machines to a competition (for organisers).", no_args_is_help=True)


def register_commands(app: typer.Typer) -> None:
    app.add_typer(commands, name="worker-token")


@commands.command()
def create(
    name: Annotated[str, typer.Argument(help="A name for it, such as the machine's name.")],
    *,
    competition: Competition = None,
    days: Annotated[int, typer.Option("--days", min=1, max=366, help="Validity in days.")] = 90,
    public_only: Annotated[
        bool, typer.Option("--public-only", help="Give it no shards, and so no data, of the private split.")
    ] = False,
    trusted: Annotated[
        bool, typer.Option("--trusted", help="Vouch for the machine: its results count unchecked (administrators).")
    ] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Create a worker token. It is shown only once: set it as LETHE_WORKER_TOKEN on the machine."""
    with connected(url) as client:
        slug = chosen_competition(client, competition)
        body = {"name": name, "expires_in_days": days, "public_only": public_only}
        if trusted:
            body["trusted"] = True
        made = client.post(f"/competitions/{slug}/worker-tokens", body)
    if as_json:
        print_json(made)
        return
    notes.print(f"Worker token {made['id']} of {slug}, good until {local_time(made['expires_at'])}:", highlight=False)
    console.print(made["token"], highlight=False, soft_wrap=True)


@commands.command("list")
def list_tokens(competition: Competition = None, url: Url = None, as_json: Json = False) -> None:
    """List the worker tokens that are not revoked."""
    with connected(url) as client:
        found = client.get(f"/competitions/{chosen_competition(client, competition)}/worker-tokens")
    if as_json:
        print_json(found)
        return
    rows = (
        (
            token["id"],
            token["name"],
            "public" if token["public_only"] else "both",
            "quarantined" if token.get("quarantined_at") else "trusted" if token.get("trusted") else "checked",
            local_time(token["expires_at"]),
            local_time(token["last_seen_at"]),
        )
        for token in found
    )
    print_table(
        "Worker tokens", ("id", "name", "splits", "results", "good until", "last seen"), rows, empty="No worker tokens."
    )


@commands.command()
def revoke(
    token_id: Annotated[str, typer.Argument(help="Its id, as `list` shows it.", metavar="ID")],
    competition: Competition = None,
    url: Url = None,
) -> None:
    """Revoke a worker token. Shards of its workers return to the queue at once."""
    with connected(url) as client:
        client.delete(f"/competitions/{chosen_competition(client, competition)}/worker-tokens/{token_id}")
    console.print(f"Worker token {token_id} is revoked.", highlight=False)
