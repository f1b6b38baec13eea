"""Finds out whether a program's later models are made like its first, as they are where each run makes its own.

The program is run up to its second model, and once more up to its first, in another process with empty folders. From
where the second model's part begins, all random numbers are the same in both: then the two models must be equal, unless
the program makes later models from what earlier ones left, or from their number.

To find where a part begins, every loop and function of the notebook counts how often it is entered. What is entered
between the first and the second model is what was entered last before the first one.
"""

import ast
import builtins
import json
import os
import resource
import shutil
import threading
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from lethe.runtime.entry import Preloaded, RunFault, Task, cell_files
from lethe.runtime.notebook_cells import Cells
from lethe.runtime.notebook_shell import report
from lethe.runtime.randomness import Randomness
from sandbox.guest.harness import flush_output, report_fault, write_all
from sandbox.guest.notebook.entry import FOLDERS, end_with_fault, report_plainly, run_cells
from sandbox.guest.notebook.files import archive_members, listed_files, model_files, natural
from sandbox.guest.notebook.first_model import FirstModel, Pieces
from sandbox.guest.notebook.frame_format import AGAIN, FIRST, SECOND, encode_checkpoint_head, encode_choice

HOOK = "__lethe_entered__"
MOST_ENTERED = 5_000_000
OWN_FOLDER = Path("/scratch/.lethe")
COMPILED = frozenset({"jit", "njit", "script", "vectorize", "guvectorize"})  # decorators that read the function
MORE_TIME, LEAST_MORE_S = 2.0, 2.0  # of what two models took, for a program that ends soon after them
CPU_SHARE = 0.9  # of the process's limit, which that must not reach


def compare_runs(task: Task, preloaded: Preloaded, frame_fd: int, *, map_cuda: bool) -> bool:
    """Send the program's first model, its second, and the one that another run makes in the second's place."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        _run_to_second(task, preloaded, frame_fd, map_cuda=map_cuda, answers=send)
    os.close(send)
    with os.fdopen(receive, "rb") as answers:
        found = answers.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status or not found:
        return False  # the child has said why
    for folder in (*FOLDERS, OWN_FOLDER.parent, Path("/dev/shm")):  # noqa: S108 - the run's own
        _empty(folder)
    _run_again(task, preloaded, frame_fd, map_cuda=map_cuda, pin_at=json.loads(found))


@dataclass
class Entered:
    """Which loops and functions were entered, in their order, by number; `at` is called with each."""

    numbers: "array[int]" = field(default_factory=lambda: array("I"))
    at: Callable[[], None] = lambda: None
    owner: int = field(default_factory=os.getpid)

    def enter(self, number: int) -> None:
        """Note that a loop's body or a function begins."""
        if os.getpid() == self.owner and len(self.numbers) < MOST_ENTERED:
            self.numbers.append(number)
            self.at()


class Hooks(ast.NodeTransformer):
    """Puts a call at the beginning of each loop's body and of each function."""

    def __init__(self) -> None:
        self._next = 0

    def change(self, tree: ast.Module) -> ast.Module:
        """Return the tree with the calls in it."""
        return self.visit(tree)  # type: ignore[no-any-return]

    def _entered(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        body: list[ast.stmt] = node.body  # type: ignore[attr-defined]
        self._next += 1
        call = ast.Expr(ast.Call(ast.Name(HOOK, ast.Load()), [ast.Constant(self._next)], []))
        ast.copy_location(call, body[0])
        body.insert(1 if _is_docstring(body[0]) and len(body) > 1 else 0, call)
        return node

    visit_For = visit_While = visit_AsyncFor = _entered  # noqa: N815 - names of the base

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Leave functions alone that something compiles."""
        words = {part for found in node.decorator_list for part in ast.unparse(found).replace("(", ".").split(".")}
        return node if words & COMPILED else self._entered(node)


@dataclass
class Seen:
    """The models of the first process. `marks`: how much had been entered when each was written."""

    entered: Entered
    paths: list[Path] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)


def _run_to_second(task: Task, preloaded: Preloaded, frame_fd: int, *, map_cuda: bool, answers: int) -> NoReturn:
    began = time.monotonic()
    seen = Seen(Entered())
    chance = Randomness(run=task.run, seed=task.seed, can_pin=True)

    def fail(kind: str) -> NoReturn:
        end_with_fault(RunFault(kind), task, frame_fd)

    def pin() -> None:
        seen.entered.at = lambda: None
        chance.pin()

    def take(path: Path, pieces: Pieces) -> None:
        if path in seen.paths:
            fail("rewritten-model")
        if len(seen.paths) > SECOND:
            return
        if seen.paths and natural(path) < natural(seen.paths[FIRST]):
            fail("unordered-models")
        _send(preloaded, frame_fd, len(seen.paths), pieces)
        seen.paths.append(path)
        seen.marks.append(len(seen.entered.numbers))
        if len(seen.paths) == 1:
            seen.entered.at = pin
        else:
            most_s = CPU_SHARE * resource.getrlimit(resource.RLIMIT_CPU)[0] - time.process_time()
            left_s = max(LEAST_MORE_S, min(most_s, MORE_TIME * (time.monotonic() - began)))
            timer = threading.Timer(left_s, lambda: _end(seen, answers))
            timer.daemon = True
            timer.start()

    try:
        _run(task, preloaded, chance, entered=seen.entered, take=take, frame_fd=frame_fd, map_cuda=map_cuda)
        if len(seen.paths) <= SECOND:
            fail("one-model")
        members = archive_members(FOLDERS)
        listed = sorted(listed_files(members or [], list(model_files(FOLDERS))), key=natural)
        if listed and listed[0] not in (seen.paths[FIRST], *FOLDERS):
            fail("other-models")
    except BaseException as error:
        if len(seen.paths) <= SECOND:
            report_fault(error, task, frame_fd)
            os._exit(1)
    _end(seen, answers)


def _end(seen: Seen, answers: int) -> NoReturn:
    """Say where the first model's part begins: after so many entries."""
    part = seen.marks[SECOND] - seen.marks[FIRST]
    number = seen.entered.numbers[seen.marks[FIRST]] if part else 0
    flush_output()
    write_all(answers, json.dumps([max(0, seen.marks[FIRST] - part), number]).encode())
    os._exit(0)


def _run_again(task: Task, preloaded: Preloaded, frame_fd: int, *, map_cuda: bool, pin_at: list[int]) -> NoReturn:
    chance = Randomness(run=task.run, seed=task.seed, can_pin=True)
    entered = Entered()
    begins, number = pin_at

    def pin() -> None:
        if len(entered.numbers) > begins and entered.numbers[-1] == number:
            entered.at = lambda: None
            chance.pin()

    def take(_path: Path, pieces: Pieces) -> NoReturn:
        _send(preloaded, frame_fd, AGAIN, pieces)
        write_all(frame_fd, encode_choice([FIRST, SECOND, AGAIN]))
        os._exit(0)

    entered.at = pin
    try:
        _run(task, preloaded, chance, entered=entered, take=take, frame_fd=frame_fd, map_cuda=map_cuda)
    except BaseException as error:
        report_fault(error, task, frame_fd)
        os._exit(1)
    end_with_fault(RunFault("one-model"), task, frame_fd)


def _run(
    task: Task,
    preloaded: Preloaded,
    chance: Randomness,
    *,
    entered: Entered,
    take: Callable[[Path, Pieces], None],
    frame_fd: int,
    map_cuda: bool,
) -> None:
    setattr(builtins, HOOK, entered.enter)
    taker = FirstModel(
        layout=preloaded.layout,
        folders=FOLDERS,
        texts=[path.read_bytes() for path in cell_files(task)],
        on_model=take,
        on_fault=lambda fault: end_with_fault(fault, task, frame_fd),
        tell=report_plainly,
    )
    run_cells(task, preloaded, taker, Cells({}), chance, map_cuda=map_cuda, change=Hooks().change)


def _send(preloaded: Preloaded, frame_fd: int, slot: int, pieces: Pieces) -> None:
    write_all(frame_fd, encode_checkpoint_head(slot) + preloaded.layout.header)
    for piece in pieces:
        write_all(frame_fd, piece)
    report(f"model {slot + 1} of 3 of the comparison is there")


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path == OWN_FOLDER:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
