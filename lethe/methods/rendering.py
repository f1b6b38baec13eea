"""A method's source text with some of its constants set to other values."""

import ast
import math
from collections.abc import Mapping

from lethe.errors import InvalidInput
from lethe.methods.catalogue import Constant, Value, method_info, method_source, method_tree, settable

TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def render(method_id: str, settings: Mapping[str, Value | str]) -> str:
    """Return the method's file with these constants replaced; texts are read as the constant's type.

    Raises NotFound for an unknown method, InvalidInput for an unknown constant or a value outside its type.
    """
    text = method_source(method_id)
    constants = {constant.name: constant for constant in method_info(method_id).constants}
    unknown = next((name for name in settings if name not in constants), None)
    if unknown is not None:
        there = ", ".join(constants) or "none"
        raise InvalidInput(f"method {method_id} has no constant {unknown!r}; there are {there}")
    lines = text.splitlines(keepends=True)
    for node in method_tree(method_id).body:
        pair = settable(node)
        if pair is not None and pair[0] in settings and isinstance(node, ast.Assign):
            value = typed_value(constants[pair[0]], settings[pair[0]])
            line, place = lines[node.lineno - 1], node.value
            lines[node.lineno - 1] = f"{line[: place.col_offset]}{value!r}{line[place.end_col_offset :]}"
    return "".join(lines)


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
