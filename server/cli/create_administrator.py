"""`lethe create-admin`: the first administrator of an instance, made on the server's own machine."""

import sys
from typing import Annotated

import typer

from lethe.cli.output import Terminal

console = Terminal()


def register_commands(app: typer.Typer) -> None:
    app.command("create-admin")(create_admin)


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
    from server.accounts import first_administrator
    from server.db import Database
    from server.private_files import instance_settings

    password = sys.stdin.readline().rstrip("\n") if password_stdin else None
    with Database(instance_settings().resolved_database_url) as database, database.write() as session:
        made = first_administrator.create(session, name=name, email=email, password=password)
    console.print(f"{made.name} is an administrator{' now' if made.existed else ''}.", highlight=False)
    if made.link:
        console.print(made.link, markup=False, highlight=False, soft_wrap=True)
        console.print("Opened once, within a day, the link sets the password.", style="dim", highlight=False)
