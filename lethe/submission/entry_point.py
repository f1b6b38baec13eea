"""Finds what to call in a submission, from its syntax alone: nothing of it is run."""

import ast
import tomllib
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lethe.errors import InvalidSubmission
from lethe.submission import notebook
from lethe.submission.archive import common_folder, refused
from lethe.submission.notebook import Mode, with_bodies_parsed
from lethe.submission.parsing import Style, parse_source, reached_definitions, refused_at, sample_style
from lethe.submission.requirements import missing_modules
from lethe.submission.signatures import Entry, Imported, ImportedFile, NotCallable, find_callable, from_elsewhere
from lethe.text_files import decode_text


def imported_files(tree: ast.Module, name: str, names: Collection[str]) -> Iterator[str]:
    """Yield those of `names` that the file `name` imports by a plain statement. tree: that file, parsed."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files_found(PurePosixPath(), alias.name.split("."), names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module.split(".") if node.module else []
            folder = _folder(name, node.level)
            for alias in node.names:
                yield from _files_found(folder, [*module, alias.name], names)


def _folder(name: str, level: int) -> PurePosixPath:
    """Return the folder that an import begins at: the package's top, or `level` dots up."""
    parents = PurePosixPath(name).parents
    return parents[min(level, len(parents)) - 1] if level else PurePosixPath()


def _files_found(folder: PurePosixPath, parts: list[str], names: Collection[str]) -> Iterator[str]:
    for part in parts:
        folder = folder / part
        for candidate in (f"{folder}.py", f"{folder}/__init__.py"):
            if candidate in names:
                yield candidate


FUNCTION = "unlearning"
USUAL_FILES = ("unlearning.py", "submission.py")
DESCRIPTION = "submission.toml"
SIGNATURE = f"{FUNCTION}(net, retain_loader, forget_loader, validation_loader)"
FOREIGN_METHODS = frozenset({"unlearn", "compute_loss", "train"})  # of the classes of deepunlearn, open-unlearning
FOREIGN_HINT = (
    f"A class of another platform needs a wrapper: def {SIGNATURE}: "
    "make it with these and call its method; docs/participants/submissions.md has an example"
)
STYLE_COMMENT = "#lethe:samples="
MAX_KEPT_BYTES = 1 << 20  # trees take a hundred times as much memory
Program = Literal["", "saves", "defines"]


@dataclass(frozen=True)
class EntryPoint:
    """What to call: a function (or class) of a file, how its loaders show a sample, which extras it wants by name.

    mode: "notebook" runs a notebook once, from top to bottom, and takes the models that its archive names. program: of
    a notebook in the mode "function", whether each run runs it until the first model that it "saves", or to its end and
    then calls what it "defines". notes: what its author should know before it fails.
    """

    file: str
    function: str = FUNCTION
    style: Style = "dict"
    keywords: tuple[str, ...] = ()
    mode: Mode = "function"
    program: Program = ""
    notes: tuple[str, ...] = ()

    def as_data(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self) | {"keywords": list(self.keywords), "notes": list(self.notes)}


class Description(BaseModel):
    """submission.toml: what a participant may say about their package."""

    model_config = ConfigDict(extra="forbid")

    file: Annotated[str, Field(max_length=500)] | None = None
    function: Annotated[str, Field(max_length=200, pattern=r"^[^\W\d]\w*$")] = FUNCTION
    samples: Style | None = None


def find_entry_point(files: Mapping[str, bytes], *, shown_as: str | None = None, task: str = "") -> EntryPoint:
    """Return the entry point of a package. Raises InvalidSubmission naming file and line.

    Only the entry file is parsed, what it imports from the package, and what might have been the entry file.

    files: content by relative path. shown_as: the name that the participant knows a lone file by. task: the name of the
    task that it is for, whose file `<task>.py` goes before any other.
    """
    top = common_folder(list(files))  # of a package, whose folder is kept
    described = _described(files, top)
    sources = [name for name in files if name.endswith(".py")]
    of_task = (f"{top}{task}.py", f"{top}{task.replace('-', '_')}.py")
    own = next((name for name in of_task if task and name in sources), None)
    file = own or _chosen_file(files, sources, described, top)
    tree = parse_source(files[file], shown_as or file)
    found = _found([tree], described.function, file=shown_as or file, imported=_imported_in(files, file))
    imported = _parsed_imports(files, tree, file)
    said = described.samples or _style_said_in([files[file]], shown_as or file)
    style = said or _calling_style([tree, *imported], found.name)
    return EntryPoint(file=file, function=found.name, style=style, keywords=found.keywords)


def entry_point_of_notebook(cells: Sequence[str], *, mode: Mode, shown_as: str, libraries: str = "") -> EntryPoint:
    """Return the entry point of a notebook's code cells. Raises InvalidSubmission naming cell and line.

    libraries: the set of older libraries that it runs with, if it is one.
    """
    if mode == "notebook":
        return EntryPoint(file=notebook.ENTRY_FILE, mode="notebook")
    trees = [with_bodies_parsed(parse_source(cell.encode(), shown_as)) for cell in cells]
    starts = [0, *accumulate(cell.count("\n") + 1 for cell in cells[:-1])]
    for tree, start in zip(trees, starts, strict=True):
        ast.increment_lineno(tree, start)
    saves = notebook.saves_models(trees)
    try:
        found = _found(trees, FUNCTION, file=shown_as, starts=starts if len(cells) > 1 else ())
    except InvalidSubmission:
        if not saves:
            raise
        found = Entry(FUNCTION, ())  # not called, if the program writes a model
    style = _style_said_in([cell.encode() for cell in cells], shown_as) or _calling_style(trees, found.name)
    return EntryPoint(
        file=notebook.ENTRY_FILE,
        function=found.name,
        style=style,
        keywords=found.keywords,
        program="saves" if saves else "defines",
        notes=missing_modules(trees, libraries=libraries),
    )


def _calling_style(trees: Sequence[ast.Module], function: str) -> Style:
    """Return how the function, and what it calls in these files, reads a batch; its own datasets do not count."""
    return sample_style([ast.Module(reached_definitions(trees, function), [])])


def _imported_in(files: Mapping[str, bytes], file: str) -> Imported:
    """Return what finds the file that a statement of `file` imports from, if the package holds it."""

    def imported(node: ast.ImportFrom) -> ImportedFile | None:
        module = ast.ImportFrom(node.module, [ast.alias("*")], node.level)
        found = list(imported_files(ast.Module([module], []), file, files))
        if not found:
            return None
        name = found[-1]
        return ImportedFile(name, [parse_source(files[name], name)], _imported_in(files, name))

    return imported


def _found(
    trees: Sequence[ast.Module],
    name: str,
    *,
    file: str,
    imported: Imported = from_elsewhere,
    starts: Sequence[int] = (),
) -> Entry:
    """Return what to call. starts: how many lines of a notebook lie before each of its cells, as the trees count them.

    Raises InvalidSubmission.
    """
    wanted = SIGNATURE.replace(FUNCTION, name)
    try:
        found = find_callable(trees, name, signature=wanted, imported=imported)
    except NotCallable as error:
        cell = bisect_left(starts, error.line)  # from 1, with the line in it
        line = error.line - (starts[cell - 1] if starts else 0)
        place = f"{file}, cell {cell}" if starts else error.file or file
        raise refused_at(place, str(error), line=line) from error
    if found is None:
        foreign = f". {FOREIGN_HINT}" if any(map(_is_foreign, trees)) else ""
        raise refused_at(file, f"has no function {name!r} at its top level; define {wanted}{foreign}")
    return found


def _is_foreign(tree: ast.Module) -> bool:
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    return any(getattr(item, "name", "") in FOREIGN_METHODS for node in classes for item in node.body)


def _check_levels(tree: ast.Module, name: str) -> None:
    """Raise InvalidSubmission for an import with more dots than the file has folders around it."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level > name.count("/"):
            shown = f"from {'.' * node.level}{node.module or ''} import …"
            raise refused_at(
                name,
                f"`{shown}` leads out of the package: zip the folder that is the package, not only what it holds, "
                "or import without dots",
                line=node.lineno,
            )


def _described(files: Mapping[str, bytes], top: str) -> Description:
    content = files.get(f"{top}{DESCRIPTION}")
    if content is None:
        return Description()
    try:
        return Description.model_validate(tomllib.loads(decode_text(content)))
    except ValidationError as error:
        raise InvalidSubmission.from_validation(error, source=DESCRIPTION) from error
    except (ValueError, RecursionError) as error:
        raise refused_at(DESCRIPTION, f"is not TOML: {error}") from error


def _parsed_imports(files: Mapping[str, bytes], tree: ast.Module, file: str) -> list[ast.Module]:
    """Return the trees of the files that the entry file needs, as many as MAX_KEPT_BYTES of text are.

    Raises InvalidSubmission if one of them cannot be read.
    """
    seen, waiting = {file}, [file]
    kept: list[ast.Module] = []
    n_bytes = 0
    while waiting:
        name = waiting.pop()
        if name != file:
            tree = parse_source(files[name], name)
            n_bytes += len(files[name])
            kept += [tree] if n_bytes <= MAX_KEPT_BYTES else []
        _check_levels(tree, name)
        found = set(imported_files(tree, name, files)) - seen
        seen |= found
        waiting += sorted(found)
    return kept


def _chosen_file(files: Mapping[str, bytes], sources: Sequence[str], described: Description, top: str) -> str:
    if described.file is not None:
        found = next((name for name in (top + described.file, described.file) if name in sources), None)
        if found is None:
            raise refused_at(DESCRIPTION, f"names the file {described.file!r}, which the package does not hold")
        return found
    usual = [top + name for name in USUAL_FILES if top + name in sources]
    if usual:
        parsed = (name for name in usual if _defines(parse_source(files[name], name), described.function))
        return usual[0] if len(usual) == 1 else next(parsed, usual[0])
    beside = [name for name in sources if "/" not in name.removeprefix(top) and not name.endswith("__init__.py")]
    if len(beside) == 1 or len(sources) == 1:
        return (beside or sources)[0]
    raise refused("file", f"needs {' or '.join(USUAL_FILES)} at its top, one single .py file, or {DESCRIPTION}")


def _defines(tree: ast.Module, name: str) -> bool:
    try:
        return find_callable([tree], name, signature=SIGNATURE) is not None
    except NotCallable:
        return True  # it is there; what is wrong with it is reported when it is chosen


def _style_said_in(contents: Sequence[bytes], file: str) -> Style | None:
    """A lone file cannot bring a submission.toml: a line `# lethe: samples = tuple` says the same."""
    texts = [decode_text(content, errors="replace") for content in contents]
    for number, line in [pair for text in texts for pair in enumerate(text.split("\n")[:50], start=1)]:
        text = line.replace(" ", "").replace('"', "").lower()
        if text.startswith(STYLE_COMMENT):
            if text == STYLE_COMMENT + "tuple":
                return "tuple"
            if text != STYLE_COMMENT + "dict":
                raise refused_at(file, "samples must be dict or tuple", line=number)
            return "dict"
    return None
