"""What a notebook expects around it: get_ipython(), display, a few modules, a shell, the folder that it works in."""

import ast
import contextlib
import importlib
import inspect
import os
import shlex
import subprocess
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

WORKING = Path("/kaggle/working")
SHELL = Path("/bin/sh")
_SILENT = frozenset(
    {
        "matplotlib",
        "config",
        "load_ext",
        "autoreload",
        "reload_ext",
        "unload_ext",
        "pylab",
        "precision",
        "xmode",
        "reset",
    }
)
_INSTALLERS = frozenset({"pip", "pip3", "conda", "mamba", "uv"})
_AS_ON_THE_SERVER = "a run has no network, and the libraries are those of the server"


class Shell:
    """Stands for IPython's shell object, as far as notebooks use it."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.user_ns = namespace
        self.user_global_ns = namespace

    def system(self, command: str, variables: Mapping[str, Any] | None = None) -> None:
        """Run a command with its output in the log. A command that fails stops nothing, as in a notebook."""
        program = command.strip().partition(" ")[0]
        if program in _INSTALLERS:
            report(f"!{program} was skipped: {_AS_ON_THE_SERVER}")
            return
        if not SHELL.exists():
            report(f"the command {command.strip()[:80]!r} was skipped: there is no shell here")
            return
        sys.stdout.flush()
        status = subprocess.run(expanded(command, variables or {}), shell=True, check=False).returncode  # noqa: S602
        self.user_ns["_exit_code"] = status
        if status:
            report(f"the command {command.strip()[:80]!r} ended with status {status}")

    def getoutput(self, command: str, variables: Mapping[str, Any] | None = None) -> list[str]:
        done = subprocess.run(  # noqa: S602 - a notebook's own command, in its own sandbox
            expanded(command, variables or {}), shell=True, check=False, stdout=subprocess.PIPE, text=True
        )
        return done.stdout.splitlines()

    def run_line_magic(self, name: str, line: str, *_rest: Any) -> Any:
        """Do what a magic asks, or report that it was skipped."""
        if name in ("cd", "chdir"):
            os.chdir(os.path.expanduser(line.strip().strip("'\"")) or "/kaggle/working")  # noqa: PTH111
        elif name in ("env", "set_env"):
            key, _, value = line.partition("=" if "=" in line else " ")
            os.environ[key.strip()] = value.strip()
        elif name in ("run",):
            self._run_file(line)
        elif name in ("system", "sx", "sh", "bash"):
            self.system(line)
        elif name in ("ls", "cat", "mkdir", "rm", "cp", "mv", "rmdir"):
            self.system(f"{name} {line}")
        elif name == "pwd":
            return str(Path.cwd())
        elif name in _INSTALLERS:
            report(f"%{name} was skipped: {_AS_ON_THE_SERVER}")
        elif name not in _SILENT:
            report(f"the magic %{name} is not known here and was skipped")
        return None

    def run_cell_magic(self, name: str, line: str, cell: str) -> None:
        if name in ("writefile", "file"):
            words = [word for word in shlex.split(line) if word not in ("-a", "--append")]
            mode = "a" if len(words) != len(shlex.split(line)) else "w"
            path = Path(words[0])
            if path.is_relative_to(WORKING) and not WORKING.exists():  # a run without Kaggle's folders
                path = path.relative_to(WORKING)
            with path.open(mode, encoding="utf-8") as file:
                file.write(cell if cell.endswith("\n") else f"{cell}\n")
        else:
            report(f"the cell magic %%{name} is not known here, and its cell was skipped")

    def magic(self, text: str) -> Any:
        name, _, line = text.lstrip("%").partition(" ")
        return self.run_line_magic(name, line)

    def run_code(self, code: str) -> None:
        run_cell(code, "<cell>", self.user_ns)

    def _run_file(self, line: str) -> None:
        words = shlex.split(line)
        path = Path(words[0])
        sys.argv = words
        run_cell(path.read_bytes(), str(path), self.user_ns)


def run_cell(code: str | bytes, filename: str, namespace: dict[str, Any]) -> None:
    """Run a cell in the notebook's namespace; as in a notebook, it may hold `await`."""
    compiled = compile(code, filename, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    running = eval(compiled, namespace)  # noqa: S307 - a notebook's own code, in its own sandbox
    if compiled.co_flags & inspect.CO_COROUTINE:
        asyncio = importlib.import_module("asyncio")  # only notebooks that wait pay for it
        asyncio.run(running)


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


def install(namespace: dict[str, Any]) -> Shell:
    """Give a notebook's namespace what Jupyter gives it, and its folder, whose modules it may import."""
    shell = Shell(namespace)
    namespace.update(get_ipython=lambda: shell, display=display, exit=sys.exit, quit=sys.exit)
    _install_modules(shell)
    os.environ["MPLBACKEND"] = "Agg"
    if os.access(WORKING, os.W_OK):
        os.chdir(WORKING)
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - a plain text, as everything on the path
    return shell


def display(*objects: Any, **_options: Any) -> None:
    """Print what a notebook would show."""
    for item in objects:
        sys.stdout.write(f"{item}\n")


def _install_modules(shell: Shell) -> None:
    """Stand in for modules that exist only around a kernel, unless they are installed."""
    shown = types.ModuleType("IPython.display")
    vars(shown).update(
        display=display, clear_output=lambda *_a, **_k: None, **dict.fromkeys(("HTML", "Markdown", "Image"), str)
    )
    ipython = types.ModuleType("IPython")
    vars(ipython).update(get_ipython=lambda: shell, display=shown, __path__=[])
    sys.modules.setdefault("IPython", ipython)
    sys.modules.setdefault("IPython.display", shown)
    sys.modules.setdefault("tqdm.notebook", _PlainBars("tqdm.notebook"))


class _PlainBars(types.ModuleType):
    """tqdm.notebook without widgets: the plain bars, loaded when they are asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        tqdm = importlib.import_module("tqdm")  # only notebooks that show bars pay for it
        return {"tqdm": tqdm.tqdm, "trange": tqdm.trange, "tqdm_notebook": tqdm.tqdm, "tnrange": tqdm.trange}[name]
