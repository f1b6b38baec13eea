"""Finds what to call in a submission, from its syntax alone: nothing of it is run."""

import ast
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from server.errors import InvalidSubmission, Violation, violations_of
from server.submissions import notebook
from server.submissions.callables import Entry, NotCallable, Style, find_callable, sample_style
from server.submissions.nesting import MAX_LEVELS, is_too_deep
from server.submissions.notebook import Mode
from server.submissions.parsing import parse_python
from server.submissions.slicing import keep_what_is_needed

FUNCTION = "unlearning"
USUAL_FILES = ("unlearning.py", "submission.py")
DESCRIPTION = "submission.toml"
SIGNATURE = f"{FUNCTION}(net, retain_loader, forget_loader, validation_loader)"
STYLE_COMMENT = "#lethe:samples="
LOOP_HINT = "Its own loop is run only in competitions that allow the mode notebook"


@dataclass(frozen=True)
class EntryPoint:
    """What to call: a function (or class) of a file, how its loaders show a sample, which extras it wants by name.

    mode: "notebook" runs the file once, from top to bottom, and takes the models that it writes.
    """

    file: str
    function: str = FUNCTION
    style: Style = "dict"
    keywords: tuple[str, ...] = ()
    mode: Mode = "function"

    def as_data(self) -> dict[str, Any]:
        return {**asdict(self), "keywords": list(self.keywords)}


class Description(BaseModel):
    """submission.toml: what a participant may say about their package."""

    model_config = ConfigDict(extra="forbid")

    file: Annotated[str, Field(max_length=500)] | None = None
    function: Annotated[str, Field(max_length=200, pattern=r"^[^\W\d]\w*$")] = FUNCTION
    samples: Style | None = None


def find_entry_point(files: dict[str, bytes], *, shown_as: str | None = None) -> EntryPoint:
    """Return the entry point of a package. Raises InvalidSubmission naming file and line.

    files: content by relative path. shown_as: the name that the participant knows a lone file by.
    """
    described = _described(files)
    trees = {name: _parsed(name, content, shown_as or name) for name, content in files.items() if name.endswith(".py")}
    file = _chosen_file(trees, described)
    found = _found([trees[file]], described.function, file=shown_as or file)
    said = described.samples or _style_said_in([files[file]], shown_as or file)
    style = said or _style_of([files[file].decode(errors="replace")], found.name)
    return EntryPoint(file=file, function=found.name, style=style, keywords=found.keywords)


def entry_point_of_notebook(cells: Sequence[str], *, mode: Mode, shown_as: str) -> EntryPoint:
    """Return the entry point of a notebook's code cells. Raises InvalidSubmission naming cell and line."""
    if mode == "notebook":
        return EntryPoint(file=notebook.ENTRY_FILE, mode="notebook")
    trees = [_parsed(f"cell {number}", cell.encode(), shown_as) for number, cell in enumerate(cells, start=1)]
    found = _found(trees, FUNCTION, file=shown_as, hint=f". {LOOP_HINT}" if notebook.saves_checkpoints(cells) else "")
    style = _style_said_in([cell.encode() for cell in cells], shown_as) or _style_of(cells, found.name)
    return EntryPoint(file=notebook.ENTRY_FILE, function=found.name, style=style, keywords=found.keywords)


def _style_of(sources: Sequence[str], function: str) -> Style:
    """Return how the function, and what it calls in these sources, reads a batch; its own datasets do not count."""
    try:
        return sample_style([parse_python(source) for source in keep_what_is_needed(sources, function)])
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # another encoding, or nested beyond reason
        return "dict"


def _found(trees: Sequence[ast.Module], name: str, *, file: str, hint: str = "") -> Entry:
    wanted = SIGNATURE.replace(FUNCTION, name)
    try:
        found = find_callable(trees, name, signature=wanted)
    except NotCallable as error:
        raise _refused(file, f"line {error.line}: {error}", line=error.line) from error
    if found is None:
        raise _refused(file, f"has no function {name!r} at its top level; define {wanted}{hint}")
    return found


def _described(files: dict[str, bytes]) -> Description:
    if DESCRIPTION not in files:
        return Description()
    try:
        return Description.model_validate(tomllib.loads(files[DESCRIPTION].decode()))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _refused(DESCRIPTION, f"is not TOML: {error}") from error
    except ValidationError as error:
        found = tuple(
            Violation(f"{DESCRIPTION}: {violation.field}", violation.message, violation.value)
            for violation in violations_of(error)
        )
        raise InvalidSubmission(f"{DESCRIPTION} has mistakes", violations=found) from error


def _parsed(name: str, content: bytes, shown_as: str) -> ast.Module:
    try:
        tree = parse_python(content, filename=name)
    except SyntaxError as error:
        raise _refused(shown_as, f"syntax error: {error.msg}", line=error.lineno) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise _refused(shown_as, f"cannot be read as Python: {error or type(error).__name__}") from error
    if is_too_deep(tree):
        raise _refused(shown_as, f"is nested deeper than {MAX_LEVELS} levels")
    return tree


def _chosen_file(trees: dict[str, ast.Module], described: Description) -> str:
    if described.file is not None:
        if described.file not in trees:
            raise _refused(DESCRIPTION, f"names the file {described.file!r}, which the package does not hold")
        return described.file
    top = [name for name in trees if "/" not in name]
    usual = [name for name in USUAL_FILES if name in trees]
    with_function = [name for name in usual if _defines(trees[name], described.function)]
    if with_function or usual:
        return (with_function or usual)[0]
    if len(top) == 1:
        return top[0]
    if len(trees) == 1:
        return next(iter(trees))
    raise _refused("file", f"needs {' or '.join(USUAL_FILES)} at its top, one single .py file, or {DESCRIPTION}")


def _defines(tree: ast.Module, name: str) -> bool:
    try:
        return find_callable([tree], name, signature=SIGNATURE) is not None
    except NotCallable:
        return True  # it is there; what is wrong with it is told when it is chosen


def _style_said_in(contents: Sequence[bytes], file: str) -> Style | None:
    """A lone file cannot bring a submission.toml: a line `# lethe: samples = tuple` says the same."""
    numbered = [pair for content in contents for pair in enumerate(content.splitlines()[:50], start=1)]
    for number, line in numbered:
        text = line.decode(errors="replace").replace(" ", "").replace('"', "").lower()
        if text.startswith(STYLE_COMMENT):
            if text == STYLE_COMMENT + "tuple":
                return "tuple"
            if text != STYLE_COMMENT + "dict":
                raise _refused(file, "samples must be dict or tuple", line=number)
            return "dict"
    return None


def _refused(field: str, message: str, *, line: int | None = None) -> InvalidSubmission:
    where = f"{field}, line {line}" if line else field
    return InvalidSubmission(f"{where}: {message}", violations=(Violation(field, message, line=line),))
