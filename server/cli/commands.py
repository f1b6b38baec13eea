"""The commands that run an instance: `lethe demo`, `up`, `close`, `migrate`, `backup` and their like."""

import typer

from server.cli import (
    archive_commands,
    create_administrator,
    install_service,
    instance_commands,
    maintenance,
    reset_password,
    worker_hosts,
)


def register_commands(app: typer.Typer) -> None:
    """Add the operator's commands to `app`."""
    instance_commands.register(app)
    for module in (install_service, create_administrator, reset_password, archive_commands, maintenance, worker_hosts):
        module.register_commands(app)
