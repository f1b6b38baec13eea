"""The `lethe` command.

The library's own commands are always there. Those that run a server or a worker come from the checkout or image that
this package lies in, and from nowhere else: a `server.py` in the current folder is never looked at.
"""

import os
import sys
from importlib import import_module
from typing import Any

# Before NumPy is loaded. Metrics solve thousands of small problems: with OpenBLAS's threads each waits for all others,
# on a busy machine up to a hundred times as long as it computes.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import typer
from rich.markup import escape
from typer.core import TyperGroup

import lethe
from lethe.cli.context import Commands, as_expected, operator_packages
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

# Modules with commands.
MODULES = (
    "account_commands", "participation_commands", "submission_commands",
    "check_command", "score_commands", "metrics_commands", "language_model_commands",
    "methods_commands", "benchmark_commands", "data_commands", "new_commands", "competition_commands",
    "rejudging_commands", "reference_commands", "api_command",
)  # fmt: skip

# Headings of `lethe --help`: the commands that are explained below each, and the others.
SECTIONS = {
    "Host on this machine": (("demo", "up"), ("close", "install-service", "doctor", "libraries")),
    "Take part": (
        ("login", "init", "check", "submit", "status", "leaderboard", "api"),
        (
            "register", "logout", "whoami", "competitions", "show", "use", "join", "team", "submissions", "logs",
            "cancel", "select", "verify",
        ),
    ),
    "Organise a competition": (("competition",), ("rejudge", "prepare", "data")),
    "Measure, without a server": (
        ("score", "evaluate", "unlearn", "metrics", "methods", "benchmark"),
        ("confidences", "compare", "reference", "new"),
    ),
    "Operate an instance": (
        ("export", "import"),
        (
            "worker", "workers", "cordon", "uncordon", "migrate", "backup", "verify-backup", "scheduled-backup",
            "restore", "gc", "replay", "create-admin", "reset-password", "reset-second-factor",
        ),
    ),
}  # fmt: skip


class AllCommands(TyperGroup):
    """The list of all commands, on one screen."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, and each command under what its reader wants to do."""
        self.format_usage(ctx, formatter)
        formatter.write(f"{self.help}\n`lethe COMMAND --help` explains one. Options: --version, --install-completion\n")
        for heading, (explained, others) in SECTIONS.items():
            there = [name for name in (*explained, *others) if name in self.commands]
            shown = [(name, self.commands[name].get_short_help_str(60)) for name in there if name in explained]
            if not there:  # of a wheel, which hosts nothing
                continue
            with formatter.section(heading):
                if shown:
                    formatter.write_dl(shown)
                if rest := [name for name in there if name in others]:
                    formatter.write_text(f"and: {', '.join(rest)}")


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
        cls=AllCommands,
        help="Take part in competitions, host them, and measure unlearning methods.",
        callback=_main,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )
    packages = (f"{package}.cli.commands" for package in operator_packages())
    for module in (*packages, *(f"lethe.cli.{name}" for name in MODULES)):
        import_module(module).register_commands(app)
    return app


if __name__ == "__main__":
    main()
