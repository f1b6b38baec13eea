"""What every method says of itself, read from its file without importing it: no torch is needed.

A method is a file with a function `unlearning` in the folder of its kind of task, or one that an installed package
names under the entry point of that kind.
"""

import ast
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import cache
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from lethe.errors import InvalidInput, NotFound
from lethe.methods.inlining import inline, parse

FOLDER = Path(__file__).parent
SECTIONS = ("Pseudo-code", "Source", "Budget", "Deterministic", "Differences", "Needs")
MEASURED = "Measured"  # the time, where docs/methods/cost.md has it; the budget counts epochs
IMAGES = "image-classification"
FOLDERS = {IMAGES: FOLDER, "causal-lm": FOLDER / "text"}  # of the methods for each kind of task
ENTRY_POINTS = {IMAGES: "lethe.methods", "causal-lm": "lethe.methods.text"}  # of installed packages: id = module
NEEDS = ("forget images", "forget labels", "validation", "convolutions", "second network", "forget answers", "refusals")
RANGE = re.compile(r"# lethe: tune (\w+) = (log|uniform|int|choice)\((.*)\)\s*$")

Value = bool | int | float | str
PHASES = ("prepare", "erase0", "erase", "repair", "finish", "loss_scale")


@dataclass(frozen=True)
class Range:
    """Where a constant is searched. log, uniform and int: lowest and highest value; choice: all values."""

    kind: Literal["log", "uniform", "int", "choice"]
    values: tuple[Value, ...]

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(repr(value) for value in self.values)})"


@dataclass(frozen=True)
class Constant:
    """A number, text or truth value at the top of a method's file that a user may set."""

    name: str
    value: Value
    range: Range | None
    note: str

    @property
    def type_name(self) -> str:
        return type(self.value).__name__


@dataclass(frozen=True)
class MethodInfo:
    """A method as its file describes it. `needs`: some of NEEDS. `phases`: those of PHASES that it defines.

    task: the kind of task that it is for. budget: epochs, counted. measured: the time, empty where nobody measured it.
    presets: the constants of the authors' experiments, by name. preset_files: where each is from.
    """

    id: str
    task: str
    title: str
    summary: str
    pseudo_code: str
    source: str
    budget: str
    measured: str
    deterministic: bool
    differences: str
    needs: tuple[str, ...]
    constants: tuple[Constant, ...]
    presets: Mapping[str, Mapping[str, Value]]
    preset_files: Mapping[str, str]
    schedule: str | None
    phases: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        ranges = {constant.name: None if constant.range is None else str(constant.range) for constant in self.constants}
        plain = asdict(self)
        for constant in plain["constants"]:
            constant["range"] = ranges[constant["name"]]
        return plain


@cache
def method_ids(task: str = IMAGES) -> tuple[str, ...]:
    """Return the ids of all methods for a kind of task, in alphabetical order."""
    return tuple(method_files(task))


@cache
def method_files(task: str) -> dict[str, Path]:
    """Return the files of all methods for a kind of task by id, sorted. Raises InvalidInput for an id given twice."""
    own = {path.stem: path for path in FOLDERS[task].glob("*.py") if "\ndef unlearning(" in path.read_text("utf-8")}
    installed = {point.name: _installed_file(point) for point in entry_points(group=ENTRY_POINTS[task])}
    if twice := sorted(own.keys() & installed.keys()):
        raise InvalidInput(f"an installed package has a method {twice[0]!r}, which is the id of one of Lethe's")
    return dict(sorted((own | installed).items()))


def _installed_file(point: EntryPoint) -> Path:
    """Return the file of an entry point's module, found without importing it or its package."""
    first, *rest = point.module.split(".")
    spec = find_spec(first)
    for name in rest:
        spec = spec and PathFinder.find_spec(f"{spec.name}.{name}", spec.submodule_search_locations)
    if spec is None or spec.origin is None:
        raise InvalidInput(f"the entry point {point.name!r} of {point.group} names {point.value}: no such module")
    return Path(spec.origin)


@cache
def method_task(method_id: str) -> str:
    """Return the kind of task that a method is for. Raises NotFound, naming the nearest ids."""
    found = next((task for task in FOLDERS if method_id in method_ids(task)), None)
    if found is None:
        known = [known_id for task in FOLDERS for known_id in method_ids(task)]
        near = get_close_matches(method_id, known, n=3) or known
        raise NotFound(f"there is no method {method_id!r}; there are {', '.join(near)}")
    return found


@cache
def method_source(method_id: str) -> str:
    """Return a method as one self-contained file. Raises NotFound, naming the nearest ids."""
    return inline(method_files(method_task(method_id))[method_id].read_text("utf-8"))


@cache
def method_tree(method_id: str) -> ast.Module:
    """Return the syntax tree of a method's file, to be read only. Raises NotFound, naming the nearest ids."""
    return parse(method_source(method_id))


@cache
def method_info(method_id: str) -> MethodInfo:
    """Return what a method's file says. Raises NotFound for an unknown id, InvalidInput for an incomplete file."""
    text = method_source(method_id)
    tree = method_tree(method_id)
    title, summary, sections = parse_docstring(ast.get_docstring(tree) or "", method_id)
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return MethodInfo(
        id=method_id,
        task=method_task(method_id),
        title=title,
        summary=summary,
        pseudo_code=sections["Pseudo-code"],
        source=_one_line(sections["Source"]),
        budget=_one_line(sections["Budget"]),
        measured=_one_line(sections.get(MEASURED, "")),
        deterministic=sections["Deterministic"] == "yes",
        differences=_one_line(sections["Differences"]),
        needs=tuple(need for need in NEEDS if need in sections["Needs"].split(", ")),
        constants=tuple(constants_in(tree, text)),
        presets=_assigned(tree, "PRESETS") or {},
        preset_files=_assigned(tree, "PRESET_FILES") or {},
        schedule=_assigned(tree, "SCHEDULE"),
        phases=tuple(phase for phase in PHASES if phase in functions),
    )


def all_methods(task: str = IMAGES) -> tuple[MethodInfo, ...]:
    """Return every method for a kind of task, in alphabetical order of ids."""
    return tuple(method_info(method_id) for method_id in method_ids(task))


def parse_docstring(text: str, method_id: str) -> tuple[str, str, dict[str, str]]:
    """Return title, summary and the sections, of which MEASURED may lack.

    Raises InvalidInput naming the first section that is missing.
    """
    head, *rest = re.split(rf"^({'|'.join((*SECTIONS, MEASURED))}):[ \n]", text, flags=re.MULTILINE)
    sections = {name: body.strip("\n").rstrip() for name, body in zip(rest[::2], rest[1::2], strict=True)}
    missing = next((name for name in SECTIONS if not sections.get(name, "").strip()), None)
    if missing is not None:
        raise InvalidInput(f"method {method_id}: its docstring has no section {missing!r}")
    title, _, summary = head.partition("\n")
    return title.strip(), _one_line(summary), sections


def settable(node: ast.stmt) -> tuple[str, Value] | None:
    """Return name and value of an assignment `NAME = literal` of one number, text or truth value, else None.

    It is one line.
    """
    if not (isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)):
        return None
    if node.end_lineno != node.lineno:
        return None
    name, value = node.targets[0].id, node.value
    if name == "SCHEDULE" or not isinstance(value, ast.Constant) or not isinstance(value.value, Value):
        return None
    return name, value.value


def constants_in(tree: ast.Module, source: str) -> list[Constant]:
    """Return the constants at the top of Python source and its tree, with what their lines say of them."""
    found, lines = [], source.split("\n")
    for node in tree.body:
        if (pair := settable(node)) is not None:
            name, value = pair
            _, _, comment = lines[node.lineno - 1].partition("  # ")
            note = "" if comment.startswith("lethe:") else comment.partition("  # lethe:")[0]
            found.append(Constant(name, value, _range(name, lines[node.lineno - 1]), note))
    return found


def _range(name: str, line: str) -> Range | None:
    match = RANGE.search(line)
    if match is None:
        return None
    if match[1] != name:
        raise InvalidInput(f"the range of {match[1]} is on the line of {name}")
    kind: Any = match[2]
    return Range(kind, tuple(ast.literal_eval(f"({match[3]},)")))


def _assigned(tree: ast.Module, name: str) -> Any:
    """Return the literal that a name is assigned at the top of a file, None if it is not there."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            return ast.literal_eval(node.value)
    return None


def _one_line(text: str) -> str:
    return " ".join(text.split())
