"""The commands that need the sandbox or a worker: `lethe doctor`, `libraries`, `replay`, `worker`."""

from typing import Annotated

import typer

from worker.cli import replay, worker


def register_commands(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command()(doctor)
    app.add_typer(worker.group, name="libraries")
    app.command("replay")(replay.replay)
    app.command("worker")(worker.run_worker)


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line instead of a table.")] = False,
) -> None:
    """Check settings, services, disk, clock, GPU and sandbox, with fixes. Exit status 1: something is wrong."""
    from worker.cli.doctor import examine_host  # a second of imports that `lethe --help` need not pay

    examine_host(as_json=as_json)
