"""`lethe workers`, `lethe cordon`, `lethe uncordon`: which hosts take work, on the server's own machine."""

from typing import Annotated

import typer
from rich.table import Table

from lethe.cli.output import Terminal
from server.cli.instance_commands import instance_session

console = Terminal()
Host = Annotated[str, typer.Argument(help="The host, as `lethe workers` names it.")]


def register_commands(app: typer.Typer) -> None:
    app.command()(workers)
    app.command()(cordon)
    app.command()(uncordon)


def workers() -> None:
    """List the instance's own workers: host, state, reason, and last report."""
    from server.worker_facts import host_of
    from server.workers import registration, worker_repository

    with instance_session() as session:
        cordoned = {row.host: row.reason for row in registration.hosts(session)}
        table = Table("worker", "host", "state", "why", "seen (UTC)", box=None)
        for row in worker_repository.own_workers(session):
            host = host_of(row.name)
            why = f"cordoned: {cordoned[host]}" if host in cordoned else row.detail
            table.add_row(row.name, host, row.state, why, f"{row.seen_at:%Y-%m-%d %H:%M:%S}")
    console.print(table)


def cordon(
    host: Host,
    reason: Annotated[str, typer.Option("--reason", help="Why; shown with its workers and in the audit log.")],
    drain: Annotated[
        bool, typer.Option("--drain", help="Also return the shards that its workers hold to the queue, at once.")
    ] = False,
) -> None:
    """Cordon a host: its workers take no new work."""
    from server.workers import registration

    with instance_session() as session:
        taken = registration.cordon(session, host, why=reason, actor=None, drain=drain)
    console.print(f"{host} takes no new work." + (f" Shards returned to the queue: {taken}." if drain else ""))


def uncordon(host: Host) -> None:
    """Uncordon a host: its workers take work again."""
    from server.workers import registration

    with instance_session() as session:
        registration.uncordon(session, host, actor=None)
    console.print(f"{host} takes work again.")
