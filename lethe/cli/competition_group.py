"""The group of commands for those who run competitions: `lethe competition …`."""

from collections.abc import Callable

import typer

from lethe.cli import bundle_command, change_commands, organiser_commands, proposal_command
from lethe.cli.context import Commands

COMMANDS: dict[str, Callable[..., None]] = {
    "new": proposal_command.new,
    "validate": organiser_commands.validate,
    "create": organiser_commands.create,
    "update": change_commands.update,
    "prepare": organiser_commands.prepare,
    "replace-split": change_commands.replace_split,
    "status": organiser_commands.show_status,
    "open": organiser_commands.open_competition,
    "close": organiser_commands.close_competition,
    "bundle": bundle_command.bundle,
}


def register_commands(app: typer.Typer) -> None:
    group = Commands(help="Make and run competitions (for organisers).", no_args_is_help=True)
    for name, command in COMMANDS.items():
        group.command(name)(command)
    app.add_typer(group, name="competition")
