"""The `lethe` command. Commands that need torch or the scorer come from other packages by entry point."""

import sys
from importlib.metadata import EntryPoint, entry_points

import typer
from rich.console import Console

from server.cli import (
    account_commands,
    archive_commands,
    competition_views,
    instance_commands,
    kit_commands,
    organiser_commands,
    receipt_commands,
    recovery,
    rejudging_commands,
    submission_commands,
    team_commands,
    upkeep,
    worker_token_commands,
)
from server.errors import AppError

GROUP = "lethe.commands"
app = typer.Typer(
    name="lethe",
    help="Run and take part in machine-unlearning competitions.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
instance_commands.register(app)
for module in (
    account_commands,
    competition_views,
    kit_commands,
    team_commands,
    submission_commands,
    organiser_commands,
    rejudging_commands,
    receipt_commands,
    recovery,
    archive_commands,
    upkeep,
    worker_token_commands,
):
    module.register_commands(app)


def main() -> None:
    """Run the command line; an expected error is one clear sentence and exit status 1."""
    for entry in entry_points(group=GROUP):
        if _is_wanted(entry):
            _attach(entry)
    try:
        app()
    except AppError as error:
        console = Console(stderr=True)
        console.print(f"[bold red]error:[/] {error.title}", highlight=False)
        console.print(error.detail, highlight=False, markup=False, soft_wrap=True)
        for violation in error.violations:
            if violation.field not in error.detail:
                console.print(f"  {violation.field}: {violation.message}", highlight=False, markup=False)
        sys.exit(1)


def _is_wanted(entry: EntryPoint) -> bool:
    """Loading torch takes seconds: do it only for the command that is asked for, and for the list of all."""
    asked = next((word for word in sys.argv[1:] if not word.startswith("-")), None)
    return asked is None or asked == entry.name


def _attach(entry: EntryPoint) -> None:
    commands: typer.Typer = entry.load()
    for command in commands.registered_commands:
        if (command.name or getattr(command.callback, "__name__", "")) == entry.name:
            app.registered_commands.append(command)


if __name__ == "__main__":
    main()
