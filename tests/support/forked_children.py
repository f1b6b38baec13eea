"""The library's child processes, forked from one that has imported their libraries: the same, and seconds sooner.

`ChildRuns` and `run_on_split` start an interpreter each, which imports torch for two seconds and then works for a tenth
of one. Only libraries are shared: what is forked imports our own code by itself, as the module that it was asked for.
"""

import fcntl
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.context import ForkServerContext
from multiprocessing.reduction import DupFd
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from tests.faults.forked import LIBRARIES

_FIRST_FREE_FD = 100  # above those that a fresh process has


@contextmanager
def forked_children() -> Iterator[None]:
    """Let the library's child processes be forked until the block ends."""
    stand_in = forked_subprocess()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lethe.evaluation.child_process.subprocess", stand_in)
        yield


def forked_subprocess() -> SimpleNamespace:
    """Return what stands in for the module `subprocess` where `python -m MODULE` is to be forked."""
    return SimpleNamespace(
        DEVNULL=subprocess.DEVNULL,
        PIPE=subprocess.PIPE,
        Popen=ForkedProcess,
        TimeoutExpired=subprocess.TimeoutExpired,
        run=_run,
    )


def run_code(code: str, *, standard_input: str = "", **environment: str) -> str:
    """Run a program's text in a process of its own, and return what it printed. Raises RuntimeError saying why not.

    environment: variables beside those of this process.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "program_under_test.py").write_text(code, encoding="utf-8")
        variables = os.environ | environment | {"PYTHONPATH": folder}
        done = run_module("program_under_test", env=variables, standard_input=standard_input)
        if done.returncode:
            raise RuntimeError(f"the program ended with {done.returncode}: {done.stderr}")
        return str(done.stdout)


def run_module(module: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `python -m module arguments` to its end. options: `env`, `cwd`, `timeout` and `standard_input`, a text."""
    return _run([sys.executable, "-m", module, *arguments], **options)


class ForkedProcess:
    """`python -m MODULE ARGUMENT ...`, as subprocess.Popen would start it; what is read from it is in files."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdout: int | IO[bytes],
        stderr: IO[bytes] | None = None,
        stdin: int | IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        module, *arguments = command[list(command).index("-m") + 1 :]
        with ExitStack() as opened:
            if stdin == subprocess.PIPE:
                read_fd, write_fd = os.pipe()
                self.stdin = os.fdopen(write_fd, "wb")
            else:
                read_fd = os.open(os.devnull, os.O_RDONLY) if stdin is None else os.dup(stdin.fileno())  # type: ignore[union-attr]
            opened.callback(os.close, read_fd)
            inherited = {0: read_fd} | {fd: fd for fd in pass_fds}
            for number, file in ((1, stdout), (2, stderr)):
                if file == subprocess.DEVNULL:
                    inherited[number] = os.open(os.devnull, os.O_WRONLY)
                    opened.callback(os.close, inherited[number])
                elif file is not None:
                    inherited[number] = file.fileno()  # type: ignore[union-attr]
            environment, folder = dict(os.environ if env is None else env), str(cwd or Path.cwd())
            self._process = _fork_server().Process(
                target=_become, args=(module, arguments, _Inherited(inherited), environment, folder)
            )
            self._process.start()

    def kill(self) -> None:
        self._process.kill()

    def terminate(self) -> None:
        self._process.terminate()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Return the exit status, None where it has not ended in time."""
        self._process.join(timeout_s)
        return self._process.exitcode


class _Inherited:
    """Descriptors, by the numbers that they are to have in the process that this is sent to.

    They arrive under other numbers: while the process is still being sent what it is to do, it reads that from a
    descriptor of its own, which may have one of ours.
    """

    def __init__(self, numbers: Mapping[int, int]) -> None:
        self._numbers = numbers

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, ({number: DupFd(fd) for number, fd in self._numbers.items()},)


def _received(numbers: Mapping[int, Any]) -> dict[int, int]:
    free = max(_FIRST_FREE_FD, *numbers) + 1  # no number of theirs: each is closed once it is in place
    return {number: fcntl.fcntl(sent.detach(), fcntl.F_DUPFD, free) for number, sent in numbers.items()}


def _put_in_place(received: Mapping[int, int]) -> None:
    for number, fd in received.items():
        os.dup2(fd, number)
        os.close(fd)


def _fork_server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LIBRARIES)
    return context


def _become(
    module: str, arguments: Sequence[str], received: Mapping[int, int], environment: Mapping[str, str], folder: str
) -> None:
    _put_in_place(received)
    for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
        del sys.modules[name]  # a copy of the checkout has its own
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[:0] = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - lives as long as the process
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _run(
    command: Sequence[str],
    *,
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    standard_input: str = "",
    **_: Any,
) -> subprocess.CompletedProcess[str]:
    """Do what subprocess.run does with `capture_output` and `text`."""
    with ExitStack() as opened:
        given, out, err = (opened.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        given.write(standard_input.encode())
        given.seek(0)
        process = ForkedProcess(command, stdin=given, stdout=out, stderr=err, env=env, cwd=cwd)
        status = process.wait(timeout)
        if status is None:
            process.kill()
            process.wait()
            raise subprocess.TimeoutExpired(command, timeout or 0.0)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
        return subprocess.CompletedProcess(command, status, *texts)
