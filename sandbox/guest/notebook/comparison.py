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
import re
import resource
import shutil
import threading
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from lethe.runtime.entry import Preloaded, RunFault, Task
from lethe.runtime.error_classes import ErrorClass
from lethe.runtime.notebook_cells import Cells
from lethe.runtime.randomness import Randomness
from sandbox.guest.frame_format import AGAIN, FIRST, SECOND, encode_choice
from sandbox.guest.harness import flush_output, write_all
from sandbox.guest.notebook.counted_models import (
    NUMBER,
    FirstModel,
    choose,
    files_listed,
    is_usual,
    natural,
    send_model,
)
from sandbox.guest.notebook.entry import end_with_fault, run_cells
from sandbox.guest.notebook.model_files import FOLDERS, Pieces

HOOK = "__lethe_entered__"
MAX_ENTERED = 5_000_000
OWN_FOLDER = Path("/scratch/.lethe")
COMPILED = frozenset({"jit", "njit", "script", "vectorize", "guvectorize"})  # decorators that read the function
MORE_TIME, MIN_EXTRA_S = 2.0, 2.0  # of what two models took, for a program that ends soon after them
CPU_SHARE = 0.9  # of the process's limit, which that must not reach


def compare_runs(task: Task, preloaded: Preloaded, frame_fd: int, *, map_cuda: bool) -> bool:
    """Send the program's first model, its second, and the one that another run makes in the second's place."""
    program = Program(task, preloaded, frame_fd, map_cuda)
    found = _in_a_child(program)
    if isinstance(found, str):  # the names of a series, whose first file is known only with the second
        program.counting = re.compile(found)
        found = _in_a_child(program)
    if found is None:
        return False  # the child has said why
    _run_again(program, begins=found[0], number=found[1])


@dataclass
class Program:
    """What is compared, and where its models go. entered: the loops and functions that were entered, by number."""

    task: Task
    preloaded: Preloaded
    frame_fd: int
    map_cuda: bool
    counting: re.Pattern[str] | None = None
    entered: "array[int]" = field(default_factory=lambda: array("I"))
    at_entry: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.chance = Randomness(seed=self.task.seed, mixes=self.task.mixes_seeds, can_pin=True)

    def run(self, take: Callable[[Path, Pieces], None]) -> BaseException:
        """Run it and return what has ended it. take: called with each model."""
        model = FirstModel(self.preloaded.layout, on_model=take, on_fault=self.fail, counting=self.counting)
        owner, cells, change = os.getpid(), Cells({}), Hooks().change

        def enter(number: int) -> None:
            model.catch_up()
            if os.getpid() == owner and len(self.entered) < MAX_ENTERED:
                self.entered.append(number)
                self.at_entry()

        setattr(builtins, HOOK, enter)
        try:
            run_cells(self.task, self.preloaded, model, cells, self.chance, map_cuda=self.map_cuda, change=change)
        except BaseException as error:
            return error
        return RunFault(ErrorClass.ONE_MODEL)

    def pin(self) -> None:
        """Give all random numbers one fixed state, once."""
        self.at_entry = lambda: None
        self.chance.pin()

    def fail(self, error: BaseException) -> NoReturn:
        """End the process."""
        end_with_fault(error, self.task, self.frame_fd)


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


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _in_a_child(program: Program) -> Any:
    """Return what a child process finds that runs to the second model; then empty the folders."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        _run_to_second(program, send)
    os.close(send)
    with os.fdopen(receive, "rb") as answers:
        found = answers.read()
    status = os.waitpid(child, 0)[1]
    for folder in (*FOLDERS, OWN_FOLDER.parent, Path("/dev/shm")):  # noqa: S108 - the run's own
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                if path != OWN_FOLDER:
                    shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
    return None if status else json.loads(found)


def _run_to_second(program: Program, answers: int) -> NoReturn:
    """Answer where the first model's part begins: after so many entries, and with which; or the names of a series."""
    began_s = time.monotonic()
    marks: dict[Path, int] = {}  # how much had been entered when each was written

    def answer(found: object) -> NoReturn:
        flush_output()
        write_all(answers, json.dumps(found).encode())
        os._exit(0)

    def end() -> NoReturn:
        first, second = marks.values()
        answer([max(0, 2 * first - second), program.entered[first] if second > first else 0])

    def take(path: Path, pieces: Pieces) -> None:
        if program.counting is None and not is_usual(path):  # only a later file has shown that it counts
            if not marks:
                answer("[0-9]+".join(map(re.escape, NUMBER.split(path.name))) + "$")
            return
        if path in marks:
            program.fail(RunFault(ErrorClass.REWRITTEN_MODEL))
        if len(marks) > SECOND:
            return
        if marks and natural(path) < natural(*marks):
            program.fail(RunFault(ErrorClass.UNORDERED_MODELS))
        send_model(program.frame_fd, len(marks), program.preloaded.layout, pieces)
        marks[path] = len(program.entered)
        if len(marks) == 1:
            program.at_entry = program.pin
        else:
            _later(end, began_s)

    ended_with = program.run(take)
    if len(marks) <= SECOND:
        program.fail(ended_with)
    listed = files_listed()
    if listed is not None and choose(listed, wanted=1) != list(marks)[:1]:
        program.fail(RunFault(ErrorClass.OTHER_MODELS))
    end()


def _later(end: Callable[[], NoReturn], began_s: float) -> None:
    """Give the program extra time: it may end soon, and what it does then counts."""
    most_s = CPU_SHARE * resource.getrlimit(resource.RLIMIT_CPU)[0] - time.process_time()
    left_s = max(MIN_EXTRA_S, min(most_s, MORE_TIME * (time.monotonic() - began_s)))
    timer = threading.Timer(left_s, end)
    timer.daemon = True
    timer.start()


def _run_again(program: Program, *, begins: int, number: int) -> NoReturn:
    def pin() -> None:
        if len(program.entered) > begins and program.entered[-1] == number:
            program.pin()

    def take(_path: Path, pieces: Pieces) -> NoReturn:
        send_model(program.frame_fd, AGAIN, program.preloaded.layout, pieces)
        write_all(program.frame_fd, encode_choice([FIRST, SECOND, AGAIN]))
        os._exit(0)

    program.at_entry = pin
    program.fail(program.run(take))
