"""A benchmark's results with numbers of one's own."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from benchmarks.papers.ordering import Ordering
from benchmarks.papers.orderings import check_orderings
from lethe.methods.catalogue import method_info

SETTINGS: dict[str, Any] = {
    "dataset": {"name": "digits", "options": {}},
    "network": {"name": "mlp", "options": {}},
    "training": {"epochs": 20, "mixing": "none", "learning_rate": 0.05},
    "splits": {"forget": {"by": "random"}},
    "metric": {"setup": "reuse-n-1"},
    "n_models": 10,
}


def method(name: str, **constants: Any) -> dict[str, Any]:
    """Return a method's entry; its id is the name without the number of layers or the note after it."""
    identity = next((each for each in ("eu_k", "cf_k") if name.startswith(each[:3])), name.split(maxsplit=1)[0])
    if "+" in identity or identity == "retrained":
        return {"name": name, "id": None, "constants": {}, "key": name}
    own = {constant.name: constant.value for constant in method_info(identity).constants}
    return {"name": name, "id": identity, "constants": own | constants, "key": name}


def cell(rows: Mapping[str, Mapping[str, Any]], **settings: Any) -> dict[str, Any]:
    """Return a cell. rows: by method or reference, metric -> value or (value, standard error)."""
    made = {name: {"values": {metric: _value(value) for metric, value in row.items()}} for name, row in rows.items()}
    return {"settings": deepcopy(SETTINGS) | settings, "rows": made}


def results(methods: list[dict[str, Any]], **cells: dict[str, Any]) -> dict[str, Any]:
    return {"methods": methods, "cells": cells, "n_models": 10}


def check(content: dict[str, Any], name: str, part: str = "") -> list[Ordering]:
    """Return what is said of the statements of this id that hold `part`."""
    return [each for each in check_orderings(content) if each.id == name and part in each.statement]


def _value(value: Any) -> dict[str, Any]:
    if not isinstance(value, tuple):
        return {"value": value, "interval": None if value is None else [value, value]}
    middle, error = value
    return {"value": middle, "interval": [middle - 1.959964 * error, middle + 1.959964 * error]}
