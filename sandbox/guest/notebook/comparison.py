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
from sandbox.guest.frame_format import AGAIN, FIRST, SECOND, encode_checkpoint_head, encode_choice
from sandbox.guest.harness import flush_output, report_fault, write_all
from sandbox.guest.notebook.entry import FOLDERS, end_with_fault, report_plainly, run_cells
from sandbox.guest.notebook.file_watch import Watch
from sandbox.guest.notebook.files import archive_members, choose, listed_files, model_files, natural
from sandbox.guest.notebook.first_model import FirstModel, OnModel, Pieces, names_of_series

HOOK = "__lethe_entered__"
MAX_ENTERED = 5_000_000
OWN_FOLDER = Path("/scratch/.lethe")
COMPILED = frozenset({"jit", "njit", "script", "vectorize", "guvectorize"})  # decorators that read the function
MORE_TIME, MIN_EXTRA_S = 2.0, 2.0  # of what two models took, for a program that ends soon after them
CPU_SHARE = 0.9  # of the process's limit, which that must not reach


def compare_runs(task: Task, preloaded: Preloaded, frame_fd: int, *, map_cuda: bool) -> bool:
    """Send the program's first model, its second, and the one that another run makes in the second's place."""
    program = Program(task, preloaded, frame_fd, map_cuda)
    found = _first_child(program)
    if isinstance(found, str):  # the names of a series, whose first file is known only with the second
        program.counting = re.compile(found)
        found = _first_child(program)
    if found is None:
        return False  # the child has said why
    _run_again(program, found)


def _first_child(program: "Program") -> Any:
    return json.loads(_in_a_child(lambda answers: _run_to_second(program, answers)) or b"null")


@dataclass
class Program:
    """What is compared, and where its models go."""

    task: Task
    preloaded: Preloaded
    frame_fd: int
    map_cuda: bool
    counting: re.Pattern[str] | None = None

    def run(self, chance: Randomness, entered: "Entered", take: OnModel) -> None:
        """Run it to its end. take: called with each model."""
        taker = FirstModel(
            layout=self.preloaded.layout,
            folders=FOLDERS,
            counting=self.counting,
            on_model=take,
            on_fault=self.fail,
            tell=report_plainly,
        )
        change, watch = Hooks().change, Watch(taker)

        def enter(number: int) -> None:
            watch.catch_up()
            entered.enter(number)

        setattr(builtins, HOOK, enter)
        run_cells(self.task, self.preloaded, watch, Cells({}), chance, map_cuda=self.map_cuda, change=change)

    def chance(self) -> Randomness:
        """Return the randomness of the run, which can be pinned."""
        return Randomness(seed=self.task.seed, mixes=self.task.mixes_seeds, can_pin=True)

    def send(self, slot: int, pieces: Pieces) -> None:
        """Send a model."""
        write_all(self.frame_fd, encode_checkpoint_head(slot) + self.preloaded.layout.header)
        for piece in pieces:
            write_all(self.frame_fd, piece)

    def fail(self, fault: RunFault) -> NoReturn:
        """End the process."""
        end_with_fault(fault, self.task, self.frame_fd)

    def fail_with(self, error: BaseException) -> NoReturn:
        """End the process for what the program has raised."""
        report_fault(error, self.task, self.frame_fd)
        os._exit(1)


def _in_a_child(work: Callable[[int], NoReturn]) -> bytes:
    """Return what a child process writes to the descriptor that it is given; then empty the folders."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        work(send)
    os.close(send)
    with os.fdopen(receive, "rb") as answers:
        answer = answers.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    for folder in (*FOLDERS, OWN_FOLDER.parent, Path("/dev/shm")):  # noqa: S108 - the run's own
        _empty(folder)
    return b"" if status else answer


@dataclass
class Entered:
    """Which loops and functions were entered, in their order, by number; `at` is called with each."""

    numbers: "array[int]" = field(default_factory=lambda: array("I"))
    at: Callable[[], None] = lambda: None
    owner: int = field(default_factory=os.getpid)

    def enter(self, number: int) -> None:
        """Note that a loop's body or a function begins."""
        if os.getpid() == self.owner and len(self.numbers) < MAX_ENTERED:
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


def _run_to_second(program: Program, answers: int) -> NoReturn:
    began = time.monotonic()
    seen, chance = Seen(Entered()), program.chance()

    def pin() -> None:
        seen.entered.at = lambda: None
        chance.pin()

    def take(path: Path, pieces: Pieces, *, is_late: bool) -> None:
        if is_late and seen.paths:
            return  # of other files
        if is_late:
            write_all(answers, json.dumps(names_of_series(path)).encode())
            os._exit(0)
        if path in seen.paths:
            program.fail(RunFault(ErrorClass.REWRITTEN_MODEL))
        if len(seen.paths) > SECOND:
            return
        if seen.paths and natural(path) < natural(seen.paths[FIRST]):
            program.fail(RunFault(ErrorClass.UNORDERED_MODELS))
        program.send(len(seen.paths), pieces)
        seen.paths.append(path)
        seen.marks.append(len(seen.entered.numbers))
        if len(seen.paths) == 1:
            seen.entered.at = pin
        else:
            _end_later(began, seen, answers)

    try:
        program.run(chance, seen.entered, take)
    except BaseException as error:
        if len(seen.paths) <= SECOND:
            program.fail_with(error)
        _end(seen, answers)
    if len(seen.paths) <= SECOND:
        program.fail(RunFault(ErrorClass.ONE_MODEL))
    members = archive_members(FOLDERS)
    if members is not None:
        listed = choose(listed_files(members, list(model_files(FOLDERS))), wanted=1)
        if listed != seen.paths[:1]:
            program.fail(RunFault(ErrorClass.OTHER_MODELS))
    _end(seen, answers)


def _end_later(began: float, seen: Seen, answers: int) -> None:
    """Give the program extra time: it may end soon, and what it does then counts."""
    most_s = CPU_SHARE * resource.getrlimit(resource.RLIMIT_CPU)[0] - time.process_time()
    left_s = max(MIN_EXTRA_S, min(most_s, MORE_TIME * (time.monotonic() - began)))
    timer = threading.Timer(left_s, lambda: _end(seen, answers))
    timer.daemon = True
    timer.start()


def _end(seen: Seen, answers: int) -> NoReturn:
    """Say where the first model's part begins: after so many entries."""
    part = seen.marks[SECOND] - seen.marks[FIRST]
    number = seen.entered.numbers[seen.marks[FIRST]] if part else 0
    flush_output()
    write_all(answers, json.dumps([max(0, seen.marks[FIRST] - part), number]).encode())
    os._exit(0)


def _run_again(program: Program, pin_at: list[int]) -> NoReturn:
    chance, entered = program.chance(), Entered()
    begins, number = pin_at

    def pin() -> None:
        if len(entered.numbers) > begins and entered.numbers[-1] == number:
            entered.at = lambda: None
            chance.pin()

    def take(path: Path, pieces: Pieces, *, is_late: bool) -> NoReturn:  # noqa: ARG001 - its names are known by now
        program.send(AGAIN, pieces)
        write_all(program.frame_fd, encode_choice([FIRST, SECOND, AGAIN]))
        os._exit(0)

    entered.at = pin
    try:
        program.run(chance, entered, take)
    except BaseException as error:
        program.fail_with(error)
    program.fail(RunFault(ErrorClass.ONE_MODEL))


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
