"""A method's source text with some of its constants set to other values."""

import ast
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from lethe.errors import InvalidInput
from lethe.methods.catalogue import Constant, Value, constants_in, method_info, method_source, settable
from lethe.methods.inlining import parse

PRESET = "preset"
TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def render(method_id: str, settings: Mapping[str, Value | str]) -> str:
    """Return the method's file with these constants replaced; texts are read as the constant's type.

    The key `preset` names constants of one of its experiments; others given beside it come before these.
    Raises NotFound for an unknown method, InvalidInput for an unknown constant or preset or a value outside its type.
    """
    return set_constants(method_source(method_id), with_preset(method_id, settings), owner=f"method {method_id}")


def read_method(name: str) -> tuple[str, str]:
    """Return id and source of a method: of the catalogue, or of a Python file, whose name ends in .py.

    Raises NotFound for an unknown id, InvalidInput for a file that cannot be read.
    """
    if not name.endswith(".py"):
        return name, method_source(name)
    path = Path(name)
    try:
        return path.stem, path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the method file {path} cannot be read: {error}") from error


def with_preset(method_id: str, settings: Mapping[str, Value | str]) -> dict[str, Value | str]:
    """Return the settings with the constants of the preset that they name. Raises InvalidInput for an unknown one."""
    own = dict(settings)
    name = own.pop(PRESET, None)
    if name is None:
        return own
    presets = method_info(method_id).presets
    if name not in presets:
        raise InvalidInput(f"method {method_id} has no preset {name!r}; there are {', '.join(presets) or 'none'}")
    return {**presets[str(name)], **own}


def set_constants(source: str, settings: Mapping[str, Value | str], *, owner: str) -> str:
    """Return Python source with constants at its top replaced, as `render` does. owner: whose they are, for messages.

    Raises InvalidInput for an unknown constant, a value outside its type, or source that is not Python.
    """
    if not settings:
        return source
    try:
        tree = parse(source)
    except (SyntaxError, ValueError) as error:
        raise InvalidInput(f"{owner} is not Python: {error}") from error
    lines = source.split("\n")
    constants = {constant.name: constant for constant in constants_in(tree, source)}
    unknown = next((name for name in settings if name not in constants), None)
    if unknown is not None:
        there = ", ".join(constants) or "none"
        raise InvalidInput(f"{owner} has no constant {unknown!r}; there are {there}")
    for node in reversed(tree.body):  # one line may hold two
        pair = settable(node)
        if pair is not None and pair[0] in settings and isinstance(node, ast.Assign):
            value = typed_value(constants[pair[0]], settings[pair[0]])
            line, place = lines[node.lineno - 1].encode(), node.value  # the tree counts bytes
            changed = line[: place.col_offset] + repr(value).encode() + line[place.end_col_offset :]
            lines[node.lineno - 1] = changed.decode()
    return "\n".join(lines)


def parse_settings(pairs: list[str]) -> dict[str, str]:
    """Return `NAME=value` texts as a mapping. Raises InvalidInput for a text of another form, or a name given twice."""
    settings: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not name or not value:
            raise InvalidInput(f"a setting is written NAME=value, was {pair!r}")
        if name in settings:
            raise InvalidInput(f"{name} is set twice")
        settings[name] = value
    return settings


def typed_value(constant: Constant, given: Value | str) -> Value:
    """Return `given` as the constant's type. Raises InvalidInput naming both."""
    value = _converted(constant, given)
    allowed = constant.range.values if constant.range and constant.range.kind == "choice" else None
    if value is None or (isinstance(constant.value, str) and allowed and value not in allowed):
        kind = f"one of {', '.join(map(repr, allowed))}" if allowed else _article(constant.type_name)
        raise InvalidInput(f"{constant.name} must be {kind}, was {given!r}")
    return value


def _converted(constant: Constant, given: Value | str) -> Value | None:
    if isinstance(constant.value, str):
        return given if isinstance(given, str) else None
    if isinstance(constant.value, bool):
        return given if isinstance(given, bool) else TRUTH.get(str(given).lower())
    return None if isinstance(given, bool) else _number(given, whole=isinstance(constant.value, int))


def _number(given: Value | str, *, whole: bool) -> int | float | None:
    if whole and isinstance(given, float):
        return None
    try:
        number = int(given) if whole else float(given)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _article(type_name: str) -> str:
    words = {"int": "a whole number", "float": "a finite number", "bool": "true or false", "str": "a text"}
    return words[type_name]


@contextmanager
def method_file(method_id: str, pairs: Sequence[str] | None) -> Iterator[tuple[Path, str]]:
    """Yield a file of the method with constants set by `NAME=value` texts, and a note that says which.

    Raises NotFound for an unknown method, InvalidInput for an unknown constant or a wrong value.
    """
    settings = parse_settings(list(pairs or []))
    text = render(method_id, settings)
    with tempfile.TemporaryDirectory(prefix="lethe-") as folder:
        path = Path(folder) / f"{method_id}.py"
        path.write_text(text, encoding="utf-8")
        yield path, " ".join([method_id, *(f"{name}={value}" for name, value in settings.items())])
