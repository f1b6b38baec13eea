"""`lethe login`, `logout`, `register`, `whoami`: your account."""

import platform
import sys
from typing import Annotated

import typer

from lethe.cli import client_config
from lethe.cli.context import Output, Server, Url
from lethe.cli.output import console, print_facts
from lethe.client.api import ApiError, LetheClient
from lethe.errors import InvalidInput
from lethe.text_files import SIGNATURE

Name = Annotated[str | None, typer.Option("--name", help="The account's name.")]
PasswordStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input, and ask for nothing.")
]


def register_commands(app: typer.Typer) -> None:
    app.command()(login)
    app.command()(logout)
    app.command("register")(register)
    app.command()(whoami)


def login(
    output: Output,
    url: Annotated[str | None, typer.Argument(help="The server's address.")] = None,
    *,
    name: Name = None,
    token: Annotated[str | None, typer.Option("--token", help="A token that you have, instead of a password.")] = None,
    scope: Annotated[
        str, typer.Option("--scope", help="What the token is good for: read, submit, organise or full.")
    ] = "full",
    days: Annotated[int, typer.Option("--days", min=1, max=365, help="Days until the token ends.")] = 90,
    password_stdin: PasswordStdin = False,
) -> None:
    """Log in to a server and remember it.

    Asks for name and password, and for the second factor's code where one is on, or takes --token.
    """
    address = _confirmed_address(url, asks=token is None and not password_stdin)
    with LetheClient(address, token=token) as client:
        if token is None:
            given = name or typer.prompt("Name", err=True)
            password = _given_password() if password_stdin else typer.prompt("Password", hide_input=True, err=True)
            token = _log_in(client, given, password, scope=scope, expires_in_days=days)
        account = client.me()
    where = client_config.keep_token(address, token)
    client_config.remember(url=address)
    output.answer({"url": address, "account": account, "token_kept_in": where})
    console.print(f"Logged in to {address} as [bold]{account['name']}[/]; the token is kept in {where}.")


def _confirmed_address(url: str | None, *, asks: bool) -> str:
    """Return where to log in. An address that a file names is asked about first, unless there is a login for it.

    Raises InvalidInput where nobody can be asked, or the answer is no.
    """
    server = client_config.find_server(url)
    if server.file is None or client_config.get_token(server) is not None:
        return server.url
    question = f"{server.file} names {server.url}. Send your password there?"
    if asks and typer.confirm(question, err=True):
        return server.url
    raise InvalidInput(f"{server.file} names {server.url}. Say where to log in: `lethe login URL`")


def _given_password() -> str:
    """Return the first line of standard input. Raises InvalidInput if there is none."""
    line = sys.stdin.readline().removeprefix(SIGNATURE).rstrip("\r\n")
    if not line:
        raise InvalidInput("--password-stdin reads the password from standard input, which gave an empty line")
    return line


def _log_in(client: LetheClient, name: str, password: str, **wanted: object) -> str:
    label = f"command line on {platform.node()}"[:100]
    try:
        return client.log_in(name, password, label=label, **wanted)
    except ApiError as error:
        if not any(wrong["field"] == "code" and wrong["message"] == "is missing" for wrong in error.problem["errors"]):
            raise
    code = typer.prompt("Code of your second factor, or a recovery code", err=True)
    return client.log_in(name, password, label=label, code=code, **wanted)


def logout(output: Output, url: Url = None) -> None:
    """Remove this machine's token."""
    address = client_config.find_server(url).url
    known = client_config.forget_token(address)
    output.answer({"url": address, "forgotten": known})
    console.print(f"Logged out of {address}." if known else f"There was no token for {address}.")


def register(
    output: Output,
    url: Annotated[str | None, typer.Argument(help="The server's address.")] = None,
    name: Name = None,
    email: Annotated[str | None, typer.Option("--email", help="Shown to nobody.")] = None,
    password_stdin: PasswordStdin = False,
) -> None:
    """Create an account on a server and log in."""
    address = _confirmed_address(url, asks=not password_stdin)
    given = name or typer.prompt("Name", err=True)
    if password_stdin:
        password = _given_password()
    else:
        password = typer.prompt("Password (10 characters or more)", hide_input=True, confirmation_prompt=True, err=True)
    with LetheClient(address) as client:
        account = client.register(given, password, email=email)
        token = client.log_in(given, password, label=f"command line on {platform.node()}"[:100])
    where = client_config.keep_token(address, token)
    client_config.remember(url=address)
    output.answer({"url": address, "account": account, "token_kept_in": where})
    console.print(f"Made the account [bold]{account['name']}[/] and logged in; the token is kept in {where}.")


def whoami(server: Server) -> None:
    """Show which account and server commands use."""
    account = server.client.me()
    server.answer({"url": server.client.url, **account})
    print_facts((("server", server.client.url), ("account", account["name"]), ("role", account["role"])))
