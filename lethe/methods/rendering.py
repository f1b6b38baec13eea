"""A method's source text with constants set, and the erase phase of one method with the repair phase of another.

Source of stitching: Triantafillou et al. 2024, appendix A.10. The first method keeps its schedule and its number of
repair epochs; the second gives the objective that repairs.
"""

import ast
import io
import math
import re
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lethe.errors import InvalidInput
from lethe.methods.catalogue import Constant, MethodInfo, Value, constants_in, method_info, method_source, settable
from lethe.methods.inlining import parse
from lethe.text_files import read_text

TOKEN = re.compile(r"\(([^()]*)\)\*(\w+)|(\w+)")
SEQUENCE = ["first.unlearning(net, *data)", "second.unlearning(net, *data)"]
STAMP = (1980, 1, 1, 0, 0, 0)  # so that equal files make an equal archive


@dataclass(frozen=True)
class Stitched:
    """A submission of several files. kind: "phases", or "sequence" where one method runs after the other."""

    files: dict[str, str]
    kind: Literal["phases", "sequence"]

    def as_zip(self) -> bytes:
        """Return the submission as an archive; equal submissions give equal bytes."""
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in sorted(self.files.items()):
                archive.writestr(zipfile.ZipInfo(name, STAMP), text, zipfile.ZIP_DEFLATED)
        return content.getvalue()


def stitch(erase_id: str, repair_id: str, *, match_lr: bool = False) -> Stitched:
    """Return erase_id's erasing with repair_id's repairing.

    match_lr: scale the repair's learning rate so that, times the mean factor on a batch's loss, it equals that of
    erase_id's own repair. Methods without declared phases run one after the other as they are.
    Raises NotFound for an unknown method, InvalidInput where there is nothing to erase or to repair with.
    """
    erase, repair = method_info(erase_id), method_info(repair_id)
    if erase.schedule is None or repair.schedule is None:
        if match_lr:
            raise InvalidInput(f"{erase_id} and {repair_id} run one after the other: no learning rate can be matched")
        return _submission(erase, repair, SEQUENCE, kind="sequence")
    if "erase" not in erase.phases:
        raise InvalidInput(f"{erase_id} has no phase that erases: its schedule is {erase.schedule!r}")
    if "repair" not in repair.phases:
        raise InvalidInput(f"{repair_id} has no phase that repairs: its schedule is {repair.schedule!r}")
    if match_lr and "repair" not in erase.phases:
        raise InvalidInput(f"{erase_id} repairs nothing: there is no learning rate to match")
    return _submission(erase, repair, _phases(erase, repair, match_lr=match_lr), kind="phases")


def _submission(
    erase: MethodInfo, repair: MethodInfo, body: list[str], *, kind: Literal["phases", "sequence"]
) -> Stitched:
    first, second = f"erase_{erase.id}", f"repair_{repair.id}"
    what = f"erase of {erase.id}, repair of {repair.id}" if kind == "phases" else f"{erase.id}, then {repair.id}"
    lines = [
        f'"""Stitched: {what}."""',
        "",
        f"import {first} as first",
        f"import {second} as second",
        "",
        "",
        "def unlearning(net, retain_loader, forget_loader, val_loader):",
        "    data = (retain_loader, forget_loader, val_loader)",
        *(f"    {line}" for line in body),
    ]
    files = {
        "unlearning.py": "\n".join(lines) + "\n",
        f"{first}.py": method_source(erase.id),
        f"{second}.py": method_source(repair.id),
    }
    return Stitched(files, kind)


def _phases(erase: MethodInfo, repair: MethodInfo, *, match_lr: bool) -> list[str]:
    schedule = erase.schedule or ""
    own_epochs = "repair" in erase.phases
    if not own_epochs:
        schedule += " repair"
    lines = ["erase_state, repair_state = {}, {}"]
    lines += ["first.prepare(net, *data, erase_state)"] * ("prepare" in erase.phases)
    lines += ["second.prepare(net, *data, repair_state)"] * ("prepare" in repair.phases)
    lines.append(f"epochs = {'first' if own_epochs else 'second'}.REPAIR_EPOCHS")
    if not any(constant.name == "EPOCHS" and isinstance(constant.value, float) for constant in repair.constants):
        lines.append("epochs = max(1, round(epochs))")
    lines.append("lr = second.REPAIR_LR")
    if match_lr:
        lines.append(f"lr = first.REPAIR_LR * {_scale('first', erase)} / {_scale('second', repair)}")
    lines += _calls(schedule)
    lines += ["first.finish(net, erase_state)"] * ("finish" in erase.phases)
    return [*lines, "net.eval()"]


def _calls(schedule: str) -> list[str]:
    """Return the lines that carry out a schedule such as "erase0 (erase repair)*ROUNDS"."""
    lines = []
    for repeated, times, single in TOKEN.findall(schedule):
        if single:
            lines.append(_call(single))
            continue
        lines.append(f"for _ in range({times if times.isdigit() else f'first.{times}'}):")
        lines += [f"    {_call(phase)}" for phase in repeated.split()]
    return lines


def _call(phase: str) -> str:
    if phase == "repair":
        return "second.repair(net, *data, repair_state, epochs, lr)"
    return f"first.{phase}(net, *data, erase_state)"


def _scale(module: str, method: MethodInfo) -> str:
    return f"{module}.loss_scale(net, data[0])" if "loss_scale" in method.phases else "1.0"


PRESET = "preset"
KINDS = {"int": "a whole number", "float": "a finite number", "bool": "true or false", "str": "a text"}
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
        return path.stem, read_text(path)
    except (OSError, ValueError) as error:
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
        kind = f"one of {', '.join(map(repr, allowed))}" if allowed else KINDS[constant.type_name]
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
