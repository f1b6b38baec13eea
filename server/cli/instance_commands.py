"""`lethe demo`, `lethe up`, `lethe close`: an instance on this machine."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

HOME_HELP = "The instance lives in LETHE_HOME (default: ~/.lethe)."
Home = Annotated[
    Path | None, typer.Option(help="Folder of the instance, in place of LETHE_HOME or ~/.lethe.", file_okay=False)
]
Host = Annotated[str | None, typer.Option(help="Address to listen on, in place of LETHE_HOST or 127.0.0.1.")]
Port = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Port to listen on, in place of LETHE_PORT or 8000; 0: any free.")
]


def register(app: typer.Typer) -> None:
    """Add the commands of an embedded instance to `app`."""
    app.command(help=f"Host a complete demo competition on this machine. {HOME_HELP}")(demo)
    app.command(help=f"Serve the instance of this machine until Ctrl-C. {HOME_HELP}")(up)
    app.command(help=f"Close a competition and re-score the chosen submissions. {HOME_HELP}")(close)


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
    from server.cli.close_command import close_competition

    close_competition(slug, json_file=json_file)


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
