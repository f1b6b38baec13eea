"""The erase phase of one method with the repair phase of another, as one submission.

Source: Triantafillou et al. 2024, appendix A.10. The first method keeps its schedule and its number of repair epochs;
the second gives the objective that repairs.
"""

import io
import re
import zipfile
from dataclasses import dataclass
from typing import Literal

from lethe.errors import InvalidInput
from lethe.methods.catalogue import MethodInfo, method_info, method_source

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
    if not _takes_part_epochs(repair):
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


def _takes_part_epochs(method: MethodInfo) -> bool:
    return any(constant.name == "EPOCHS" and isinstance(constant.value, float) for constant in method.constants)
