"""`lethe create-admin`, `reset-password`, `reset-second-factor`: accounts without a log-in, on the server's machine."""

import sys
from typing import Annotated

import typer

from lethe.cli.output import Terminal
from server.cli.instance_commands import instance_session

console = Terminal()


def register_commands(app: typer.Typer) -> None:
    app.command("create-admin")(create_admin)
    app.command("reset-password")(reset_password)
    app.command("reset-second-factor")(reset_second_factor)


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
