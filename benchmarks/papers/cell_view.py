"""One cell of a benchmark's results, asked by methods' ids."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lethe.benchmark.benchmark_file import parse_benchmark
from lethe.benchmark.results import RETAIN_UTILITY
from lethe.methods.catalogue import method_info
from lethe.metrics.scoring.attacks.family import EPSILON_CAP

ORACLE, ORIGINAL = "exact retraining", "original model"
Z_95 = 1.959964
WINNERS = ("fcs", "msg", "cfw", "prmq", "kde", "rni")  # of the competition of 2023


@dataclass(frozen=True)
class CellView:
    """content: a benchmark's results. name: of the cell."""

    content: Mapping[str, Any]
    name: str

    @property
    def methods(self) -> list[str]:
        """Return the names of the methods that have results here, references left out."""
        rows = self.content["cells"][self.name]["rows"]
        return [m["name"] for m in self.content["methods"] if m["name"] in rows and not rows[m["name"]].get("failure")]

    def named(self, method_id: str) -> str | None:
        """Return the name of a method of this id that has results; the one without changed constants first."""
        there = set(self.methods)
        names = [m["name"] for m in self.content["methods"] if m["id"] == method_id and m["name"] in there]
        return method_id if method_id in names else next(iter(names), None)

    def by_layers(self, method_id: str) -> dict[int, str]:
        """Return the names of the variants of eu_k or cf_k by their K, ascending."""
        there = set(self.methods)
        chosen = [m for m in self.content["methods"] if m["id"] == method_id and m["name"] in there]
        return dict(sorted((int(m["constants"]["K"]), m["name"]) for m in chosen))

    def constants(self, name: str) -> dict[str, Any]:
        """Return the constants of a method, by the name of its row; those of a file of code are unknown: none."""
        given = next((dict(m["constants"]) for m in self.content["methods"] if m["name"] == name), {})
        return given | self._tuned(name)

    def _tuned(self, name: str) -> dict[str, Any]:
        row = self.content["cells"][self.name]["rows"].get(name, {})
        return dict(row.get("tuning", {}).get("settings", {}))

    def with_own_constants(self, method_id: str) -> str | None:
        """Return the name of the method of this id for which no constant was set to another than the catalogue's.

        What was set is what the benchmark file says and what its tuning chose, or every constant where the results
        hold no file: a default that has changed since they were made is still the method's own.
        """
        own = {constant.name: constant.value for constant in method_info(method_id).constants}
        ids = {m["name"]: m["id"] for m in self.content["methods"]}
        given = {name: self.constants(name) for name in ids}
        if "benchmark" in self.content:
            entries = parse_benchmark(self.content["benchmark"]).methods
            given = {entry.label: dict(entry.constants) | self._tuned(entry.label) for entry in entries}
        there = (name for name in self.methods if ids[name] == method_id)
        return next((name for name in there if given[name].items() <= own.items()), None)

    def settings(self, *names: str) -> dict[str, Any]:
        """Return these sections of the cell's competition."""
        found = self.content["cells"][self.name]["settings"]
        found = {"scoring": found.get("metric"), **found}  # its name in results of version 0.2
        return {name: found.get(name) for name in names}

    def table(self, name: str, metric: str) -> dict[str, Any]:
        """Return the table of a metric of a method or reference, empty where it has none."""
        row = self.content["cells"][self.name]["rows"].get(name, {})
        return dict(row.get("tables", {}).get(metric) or {})

    def n_forget(self) -> int:
        """Return the number of forget examples, 0 where no row has epsilon."""
        rows = self.content["cells"][self.name]["rows"].values()
        return next((len(row["epsilon"]) for row in rows if row.get("epsilon")), 0)

    def epsilon_cap(self) -> float:
        """Return the epsilon of an example that an attack tells apart without error."""
        return float((self.settings("scoring")["scoring"] or {}).get("epsilon_cap", EPSILON_CAP))

    def value(self, name: str | None, metric: str) -> float | None:
        """Return a metric of a method or reference, None where it has none."""
        row = self.content["cells"][self.name]["rows"].get(name, {})
        found = row.get("values", {}).get(metric, {}).get("value")
        return None if found is None else float(found)

    def utility(self, name: str | None) -> float | None:
        """Return model utility; of a network without pretraining that of the retain set, None where there is none."""
        whole = self.value(name, "model_utility")
        return self.value(name, RETAIN_UTILITY) if whole is None else whole

    def by_epochs(self, method_id: str) -> dict[int, str]:
        """Return the names of a method's rows by their EPOCHS, ascending."""
        there = set(self.methods)
        chosen = [m for m in self.content["methods"] if m["id"] == method_id and m["name"] in there]
        return dict(sorted((int(m["constants"]["EPOCHS"]), m["name"]) for m in chosen if "EPOCHS" in m["constants"]))

    def most_epochs(self, method_id: str) -> str | None:
        """Return the name of a method's row with the most epochs."""
        return next(reversed(self.by_epochs(method_id).values()), None)

    def error(self, name: str | None, metric: str) -> float:
        """Return the standard error of a metric, by its 95 % interval; NaN where none is known."""
        row = self.content["cells"][self.name]["rows"].get(name, {})
        interval = row.get("values", {}).get(metric, {}).get("interval")
        return float(interval[1] - interval[0]) / (2 * Z_95) if interval and None not in interval else math.nan

    def spread(self, name: str, metric: str) -> float | None:
        """Return the standard deviation of a metric over runs."""
        row = self.content["cells"][self.name]["rows"].get(name, {})
        found = row.get("values", {}).get(metric, {}).get("standard_deviation")
        return None if found is None else float(found)

    def known(self, metric: str, *names: str | None) -> dict[str, float]:
        """Return the metric of those of `names` that have it."""
        found = {name: self.value(name, metric) for name in names if name is not None}
        return {name: value for name, value in found.items() if value is not None}

    def forget_by(self) -> str:
        return str(self.content["cells"][self.name]["settings"]["splits"]["forget"]["by"])
