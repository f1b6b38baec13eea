"""Commands of the instance on this machine: `lethe demo`, `up`, `close`, its accounts, its own workers."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from lethe.cli.output import Terminal

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

console = Terminal()
HostName = Annotated[str, typer.Argument(help="The host, as `lethe workers` names it.")]


def workers() -> None:
    """List the instance's own workers: host, state, reason, and last report."""
    from server.models.worker import host_of
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
    host: HostName,
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


def uncordon(host: HostName) -> None:
    """Uncordon a host: its workers take work again."""
    from server.workers import registration

    with instance_session() as session:
        registration.uncordon(session, host, actor=None)
    console.print(f"{host} takes work again.")


HOME_HELP = "The instance lives in LETHE_HOME (default: ~/.lethe)."
Home = Annotated[
    Path | None, typer.Option(help="Folder of the instance, in place of LETHE_HOME or ~/.lethe.", file_okay=False)
]
Host = Annotated[str | None, typer.Option(help="Address to listen on, in place of LETHE_HOST or 127.0.0.1.")]
Port = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Port to listen on, in place of LETHE_PORT or 8000; 0: any free.")
]


def register_commands(app: typer.Typer) -> None:
    app.command(help=f"Host a complete demo competition on this machine. {HOME_HELP}")(demo)
    app.command(help=f"Serve the instance of this machine until Ctrl-C. {HOME_HELP}")(up)
    app.command(help=f"Close a competition and re-score the chosen submissions. {HOME_HELP}")(close)
    app.command("create-admin")(create_admin)
    app.command("reset-password")(reset_password)
    app.command("reset-second-factor")(reset_second_factor)
    for command in (workers, cordon, uncordon):
        app.command()(command)


def demo(
    *,
    exit_at_end: Annotated[bool, typer.Option("--exit", help="Exit at the end instead of serving the pages.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the results to this file.")] = None,
    wait_for_baselines: Annotated[
        bool,
        typer.Option(
            "--wait-for-baselines",
            help="Wait for the organiser's baselines too; without it, --exit leaves them to the next `lethe up`.",
        ),
    ] = False,
    home: Home = None,
    host: Host = None,
    port: Port = None,
) -> None:
    from server.cli.demo import run_demo

    set_environment(home=home, host=host, port=port)

    run_demo(serve=not exit_at_end, wait_for_baselines=wait_for_baselines, json_file=json_file)


def up(home: Home = None, host: Host = None, port: Port = None) -> None:
    from server.cli.serve import serve

    set_environment(home=home, host=host, port=port)
    serve()


def close(
    slug: Annotated[str, typer.Argument(help="The competition, e.g. digits.")],
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the private leaderboard to this file.")
    ] = None,
) -> None:
    from server.cli.serve import close_competition

    close_competition(slug, json_file=json_file)


def create_admin(
    name: Annotated[str, typer.Argument(help="The account's name; made if there is none.")],
    email: Annotated[str | None, typer.Option(help="Address for mail about the instance.")] = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input, and print no link.")
    ] = False,
) -> None:
    """Make an administrator, and print a link that sets the password. For the server's machine.

    An account that is there becomes an administrator and keeps its password.
    """
    from server.accounts import password_reset

    password = sys.stdin.readline().rstrip("\n") if password_stdin else None
    with instance_session() as session:
        made = password_reset.create(session, name=name, email=email, password=password)
    console.print(f"{made.name} is an administrator{' now' if made.existed else ''}.", highlight=False)
    if made.link:
        console.print(made.link, markup=False, highlight=False, soft_wrap=True)
        console.print("Opened once, within a day, the link sets the password.", style="dim", highlight=False)


def reset_password(name: Annotated[str, typer.Argument(help="The account's name.")]) -> None:
    """Print a link with which a person sets a new password. It works once, within a day; for the server's machine."""
    from server.accounts import accounts, password_reset

    with instance_session() as session:
        account = accounts.find(session, name)
        issued = password_reset.issue(session, account, actor=None, lifetime=password_reset.BY_ADMINISTRATOR)
    console.print(issued.link, markup=False, highlight=False, soft_wrap=True)
    console.print(f"Works once, until {issued.expires_at:%Y-%m-%d %H:%M} UTC.", style="dim", highlight=False)


def reset_second_factor(name: Annotated[str, typer.Argument(help="The account's name.")]) -> None:
    """Switch off the second factor of a person who lost it and the recovery codes; for the server's machine."""
    from server.accounts import accounts, second_factor

    with instance_session() as session:
        account = accounts.find(session, name)
        second_factor.switch_off(session, account, actor=None, reason="reset on the server's machine")
    console.print(f"{account.name} logs in with the password alone now.", highlight=False)


def set_environment(**given: Path | str | int | None) -> None:
    """Put options into the environment, from which this process and those that it starts read their settings."""
    for name, value in given.items():
        if value is not None:
            os.environ[f"LETHE_{name.upper()}"] = str(value.absolute() if isinstance(value, Path) else value)


@contextmanager
def instance_session() -> "Iterator[Session]":
    """Open a session on this machine's instance, committed at its end."""
    from server.db import Database
    from server.private_files import instance_settings

    with Database(instance_settings().resolved_database_url) as database, database.write() as session:
        yield session
