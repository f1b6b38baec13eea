"""What a notebook expects around it: IPython's own shell, display, the folder that it works in."""

import contextlib
import importlib
import os
import subprocess
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from string import Template
from typing import Any

from lethe.runtime import notebook_cells

WORKING = Path("/kaggle/working")
SHELL = Path("/bin/sh")
NO_NETWORK = frozenset({"pip", "pip3", "conda", "mamba", "micromamba", "uv"})
AS_ON_THE_SERVER = "a run has no network, and the libraries are those of the server"
SHORT_COMMANDS = frozenset({"ls", "cat", "mkdir", "rm", "cp", "mv", "rmdir"})


def install(namespace: dict[str, Any], *, at_once: bool = False) -> None:
    """Give a notebook's namespace what Jupyter gives it, and its folder, whose modules it may import.

    at_once: make IPython's shell now, for code that asks IPython itself for it; else when the notebook first needs it.
    """
    made: list[Any] = []

    def get_ipython() -> Any:
        if not made:
            made.append(_make_shell(namespace))
        return made[0]

    def display(*objects: Any, **options: Any) -> Any:
        get_ipython()
        return importlib.import_module("IPython.display").display(*objects, **options)

    namespace.update(get_ipython=get_ipython, display=display, exit=sys.exit, quit=sys.exit)
    os.environ["MPLBACKEND"] = "Agg"
    if os.access(WORKING, os.W_OK):
        os.chdir(WORKING)
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - a plain text, as everything on the path
    if at_once:
        get_ipython()


def _make_shell(namespace: dict[str, Any]) -> Any:
    """Return IPython's shell on this namespace, without a terminal, a history or a network."""
    os.environ.setdefault("IPYTHONDIR", os.path.join(os.environ.get("TMPDIR", "/tmp"), ".ipython"))  # noqa: PTH118, S108
    shell_module = importlib.import_module("IPython.core.interactiveshell")
    config = importlib.import_module("traitlets.config").Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor"
    kind: Any = types.new_class(
        "NotebookShell", (shell_module.InteractiveShell,), exec_body=lambda body: body.update(METHODS)
    )
    main = sys.modules["__main__"]
    shell = kind.instance(config=config, user_module=main if main.__dict__ is namespace else None, user_ns=namespace)
    return shell


def system(shell: Any, command: str, variables: Mapping[str, Any] | None = None) -> None:
    """Run a command with its output in the log. A command that fails stops nothing, as in a notebook."""
    program = command.strip().partition(" ")[0]
    if program in NO_NETWORK:
        report(f"!{program} was skipped: {AS_ON_THE_SERVER}")
        return
    if not SHELL.exists():
        report(f"the command {command.strip()[:80]!r} was skipped: there is no shell here")
        return
    sys.stdout.flush()
    status = subprocess.run(expanded(command, variables or {}), shell=True, check=False).returncode  # noqa: S602
    shell.user_ns["_exit_code"] = status
    if status:
        report(f"the command {command.strip()[:80]!r} ended with status {status}")


def getoutput(_shell: Any, command: str, variables: Mapping[str, Any] | None = None, **_options: Any) -> list[str]:
    """Return the lines that a command prints."""
    done = subprocess.run(  # noqa: S602 - a notebook's own command, in its own sandbox
        expanded(command, variables or {}), shell=True, check=False, stdout=subprocess.PIPE, text=True
    )
    return done.stdout.splitlines()


def run_line_magic(shell: Any, name: str, line: str, *_rest: Any) -> Any:
    """Do what a magic asks, as IPython does it, or report that it was skipped."""
    if name in NO_NETWORK:
        report(f"%{name} was skipped: {AS_ON_THE_SERVER}")
        return None
    if name in SHORT_COMMANDS:
        return shell.system(f"{name} {line}", shell.user_ns)
    return _known(shell, name, lambda: super_method(shell, "run_line_magic")(name, line))


def run_cell_magic(shell: Any, name: str, line: str, cell: str) -> Any:
    """Do what a cell's magic asks, as IPython does it, or report that it was skipped."""
    if name in ("writefile", "file") and not WORKING.exists():  # a run without Kaggle's folders
        line = line.replace(f"{WORKING}/", "")
    return _known(shell, f"%{name}", lambda: super_method(shell, "run_cell_magic")(name, line, cell))


def super_method(shell: Any, name: str) -> Callable[..., Any]:
    """Return IPython's own method, which the notebook's shell overrides."""
    found: Callable[..., Any] = getattr(super(type(shell), shell), name)
    return found


def _known(_shell: Any, name: str, run: Callable[[], Any]) -> Any:
    usage_error = importlib.import_module("IPython.core.error").UsageError
    try:
        return run()
    except usage_error as error:
        report(f"%{name} was skipped: {str(error).splitlines()[0] if str(error) else 'it is not known here'}")
        return None


def run_text(shell: Any, code: str) -> None:
    """Run a cell that an export of a notebook holds as a text."""
    notebook_cells.execute(notebook_cells.compiled(code, "<cell>"), shell.user_ns)


def no_window(*_arguments: Any) -> None:
    """Stand for a graphical interface, which is not there."""


METHODS: Mapping[str, Any] = {
    "system": system,
    "getoutput": getoutput,
    "run_line_magic": run_line_magic,
    "run_cell_magic": run_cell_magic,
    "run_text": run_text,
    "enable_gui": no_window,
}


def report(text: str) -> None:
    """Say something in the run's log."""
    sys.stdout.write(f"[lethe] {text}\n")
    sys.stdout.flush()


def expanded(command: str, variables: Mapping[str, Any]) -> str:
    """Return a command with {name} and $name replaced by values of the notebook, as IPython does it."""
    if "{" in command:
        with contextlib.suppress(KeyError, IndexError, ValueError, AttributeError):  # braces that are the shell's
            command = command.format(**variables)
    plain = {name: value for name, value in variables.items() if isinstance(value, str | int | float | os.PathLike)}
    return Template(command).safe_substitute(plain) if "$" in command else command
