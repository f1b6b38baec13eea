"""The `lethe` command.

The library's own commands are always there. Those that run a server or a worker come from the checkout or image that
this package lies in, and from nowhere else: a `server.py` in the current folder is never looked at.
"""

import os
import sys
from importlib import import_module

# Before NumPy is loaded. Metrics solve thousands of small problems: with OpenBLAS's threads each waits for all others,
# on a busy machine up to a hundred times as long as it computes.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import typer
from rich.markup import escape
from typer.models import CommandInfo, TyperInfo

import lethe
from lethe.cli.context import Commands
from lethe.cli.operator_packages import as_expected, operator_packages
from lethe.cli.output import Terminal, accept_any_letter
from lethe.errors import AppError

# Which extra of the distribution brings a package that is not always installed.
EXTRAS = {
    **dict.fromkeys(("torch", "torchvision", "safetensors", "PIL"), "torch"),
    **dict.fromkeys(("tokenizers", "sentencepiece"), "text"),
    "pandas": "frames",
    "pyarrow": "parquet",
    "matplotlib": "plots",
    "timm": "networks",
    "optuna": "tune",
    **dict.fromkeys(("transformers", "peft", "gguf"), "hf"),
}

# Modules with commands, in the order of their lists.
MODULES = (
    "account_commands", "competition_views", "kit_commands", "team_commands", "participation_commands",
    "question_commands", "submission_commands", "check_command", "score_command", "prepare_command",
    "confidences_command", "metrics_commands", "language_model_commands", "methods_commands",
    "benchmarks.benchmark_commands", "data_commands", "new_commands", "competition_group", "dataset_commands",
    "rejudging_commands", "receipt_commands",
    "reference_commands", "worker_token_commands",
)  # fmt: skip

# Headings of `lethe --help`, and the commands below each.
PANELS = {
    "Try it, and host on this machine": ("demo", "up", "install-service", "close", "doctor", "libraries"),
    "Take part": (
        "login", "logout", "register", "whoami", "tokens", "join", "terms", "questions", "ask", "pages",
        "team", "competitions", "show",
        "leaderboard", "quota", "use",
        "init", "check", "submit", "submissions", "status", "logs", "answers", "cancel", "select", "publish",
        "download", "receipt", "verify",
    ),
    "Organise a competition": ("competition", "dataset", "data", "prepare", "rejudge", "accounts", "worker-token"),
    "Measure, without a server": (
        "score", "confidences", "evaluate", "unlearn", "compare", "metrics", "methods", "benchmark", "reference", "new",
    ),
    "Operate an instance": (
        "worker", "workers", "cordon", "uncordon", "migrate", "backup", "verify-backup", "scheduled-backup", "restore",
        "export", "import", "gc", "replay", "create-admin", "reset-password", "reset-second-factor",
    ),
}  # fmt: skip


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"lethe {lethe.__version__}")
        raise typer.Exit


def _main(
    _version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", is_eager=True, callback=_print_version
    ),
) -> None:
    pass


def main() -> None:
    """Run the command line; an expected error is one clear sentence and exit status 1."""
    accept_any_letter()
    try:
        build_app()()
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        typer.echo(
            f"error: this command needs {error.name}, which is not installed: install lethe-unlearning[{extra}]",
            err=True,
        )
        sys.exit(1)
    except Exception as error:
        expected = error if isinstance(error, AppError) else as_expected(error)
        if expected is None:
            raise
        console = Terminal(stderr=True)
        console.print("[bold red]error:[/]", escape(expected.detail or expected.title), highlight=False, soft_wrap=True)
        for violation in expected.violations:
            if violation.message not in expected.detail:
                console.print(f"  {violation.field}: {violation.message}", highlight=False, markup=False)
        sys.exit(1)


def build_app() -> typer.Typer:
    """Return the command with everything that this installation has."""
    app = Commands(
        name="lethe",
        help="Take part in machine-unlearning competitions, host them, and measure unlearning methods.",
        callback=_main,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    packages = (f"{package}.cli.commands" for package in operator_packages())
    for module in (*packages, *(f"lethe.cli.{name}" for name in MODULES)):
        import_module(module).register_commands(app)
    _group(app)
    return app


def _group(app: typer.Typer) -> None:
    """Show each command of the list of all under what its reader wants to do."""
    headings = {name: heading for heading, names in PANELS.items() for name in names}
    commands: list[CommandInfo | TyperInfo] = [*app.registered_commands, *app.registered_groups]
    for command in commands:
        command.rich_help_panel = headings.get(_name(command))
    order = list(PANELS)
    app.registered_commands.sort(key=lambda command: order.index(str(headings.get(_name(command), order[0]))))


def _name(command: CommandInfo | TyperInfo) -> str:
    """Return how a command is called, however its module has said so."""
    if isinstance(command.name, str):
        return command.name
    if isinstance(command, TyperInfo):
        return str(command.typer_instance.info.name) if command.typer_instance else ""
    return getattr(command.callback, "__name__", "").replace("_", "-")


if __name__ == "__main__":
    main()
