"""`lethe worker-token …`: which machines of an organiser's own may run a competition's shards."""

from typing import Annotated

import typer

from lethe.cli.context import Commands, InCompetition
from lethe.cli.output import Columns, console, local_time, notes, print_rows
from lethe.client.api import JsonObject

commands = Commands(help="Attach your own machines to a competition (for organisers).", no_args_is_help=True)


def register_commands(app: typer.Typer) -> None:
    app.add_typer(commands, name="worker-token")


@commands.command()
def create(
    server: InCompetition,
    name: Annotated[str, typer.Argument(help="A name for it, such as the machine's name.")],
    *,
    days: Annotated[int, typer.Option("--days", min=1, max=366, help="Validity in days.")] = 90,
    public_only: Annotated[
        bool, typer.Option("--public-only", help="Give it no shards, and so no data, of the private split.")
    ] = False,
    trusted: Annotated[
        bool, typer.Option("--trusted", help="Vouch for the machine: its results count unchecked (administrators).")
    ] = False,
) -> None:
    """Create a worker token. It is shown only once: set it as LETHE_WORKER_TOKEN on the machine."""
    body = {"name": name, "expires_in_days": days, "public_only": public_only} | ({"trusted": True} if trusted else {})
    made = server.client.post(f"/competitions/{server.slug}/worker-tokens", body)
    server.answer(made)
    until = local_time(made["expires_at"])
    notes.print(f"Worker token {made['id']} of {server.slug}, good until {until}:", highlight=False)
    console.print(made["token"], highlight=False, soft_wrap=True)


@commands.command("list")
def list_tokens(server: InCompetition) -> None:
    """List the worker tokens that are not revoked."""
    found = server.client.get(f"/competitions/{server.slug}/worker-tokens")
    server.answer(found)
    columns: Columns = {
        "id": "id",
        "name": "name",
        "splits": lambda token: "public" if token["public_only"] else "both",
        "results": _results,
        "good until": "expires_at",
        "last seen": "last_seen_at",
    }
    print_rows(found, columns, title="Worker tokens", empty="No worker tokens.")


def _results(token: JsonObject) -> str:
    return "quarantined" if token.get("quarantined_at") else "trusted" if token.get("trusted") else "checked"


@commands.command()
def revoke(
    server: InCompetition, token_id: Annotated[str, typer.Argument(help="Its id, as `list` shows it.", metavar="ID")]
) -> None:
    """Revoke a worker token. Shards of its workers return to the queue at once."""
    server.client.delete(f"/competitions/{server.slug}/worker-tokens/{token_id}")
    server.answer({"id": token_id, "revoked": True})
    console.print(f"Worker token {token_id} is revoked.", highlight=False)
