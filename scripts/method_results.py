"""A method's rows of the committed benchmark on digits, for its page."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from lethe.methods.catalogue import IMAGES, MethodInfo

RESULTS = Path(__file__).parents[1] / "docs" / "benchmarks" / "digits.json"
COLUMNS = {"f": "F", "score": "score", "accuracy_gap": "accuracy gap", "mia_gap": "MIA gap", "rte": "RTE"}
# methods whose defaults took other steps when the tables of docs/benchmarks were made
CHANGED_SINCE = {
    *("cf_k", "duck", "eu_k", "fcs", "l1_sparse", "msg", "neggradplus", "prmq"),
    *("random_label", "rni", "salun", "scrub", "srl", "ssd", "ssd_adaptive", "unsir"),
}
REFERENCES = ("exact retraining", "original model")


def results(method: MethodInfo) -> list[str]:
    """Return the lines of a page's section; none for a method of another task than the benchmark's."""
    if method.task != IMAGES:
        return []
    content = _read()
    ((cell, found),) = content["cells"].items()
    names = {each["name"]: _title(method, each["constants"]) for each in content["methods"] if each["id"] == method.id}
    names |= {name: name for name in REFERENCES} if names else {}
    head = ["## Result on digits", ""]
    if not names:
        reason = "a network without convolutions" if "convolutions" in method.needs else "other methods"
        return [*head, f"None: the [benchmark on digits](../benchmarks/digits.md) has {reason}.", ""]
    network = found["settings"]["network"]
    layers = "-".join(str(width) for width in network["options"]["hidden"])
    return [
        *head,
        f"[Benchmark on digits](../benchmarks/digits.md), cell {cell}: hidden layers of {layers}, constants as below "
        f"unless the row names others, {content['n_models']} models a side; 95 % intervals in brackets. RTE: time of "
        "retraining over the method's, rough, for the machine was busy; see [time and memory](cost.md).",
        "",
        *_mark(method),
        f"| | {' | '.join(COLUMNS.values())} |",
        f"|---|{'---:|' * len(COLUMNS)}",
        *(_row(title, found["rows"][name]) for name, title in names.items()),
        "",
    ]


def _mark(method: MethodInfo) -> list[str]:
    if method.id not in CHANGED_SINCE:
        return []
    return [
        "**The rows of the method are of an earlier version, which took other steps; they are to be made again.**",
        "",
    ]


def _title(method: MethodInfo, constants: Mapping[str, Any]) -> str:
    """Return the id and the constants of a row that are not those of the method's file."""
    own = {constant.name: constant.value for constant in method.constants}
    return " ".join([method.id, *(f"{name}={value}" for name, value in constants.items() if value != own.get(name))])


@cache
def _read() -> Mapping[str, Any]:
    content: Mapping[str, Any] = json.loads(RESULTS.read_text("utf-8"))
    return content


def _row(name: str, row: Mapping[str, Any]) -> str:
    if row.get("failure"):
        return f"| {name} | {' | '.join('F' for _ in COLUMNS)} |"
    return f"| {name} | {' | '.join(_shown(row['values'].get(column)) for column in COLUMNS)} |"


def _shown(found: Mapping[str, Any] | None) -> str:
    if found is None or found["value"] is None:
        return "-"
    low, high = found.get("interval") or (None, None)
    text = f"{found['value']:.3f}"
    return text if low is None or high is None else f"{text} [{low:.3f}, {high:.3f}]"
