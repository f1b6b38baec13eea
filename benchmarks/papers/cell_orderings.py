"""Orderings within one cell, between methods or between variants of a method.

Sources: Triantafillou et al. 2024 (E-06, E-08), Goel et al. 2023 (E-17, E-18), Cadet et al. 2024 (E-24, E-26).
"""

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from benchmarks.papers.ordering import BenchmarkRule, shown
from lethe.reports.cell_view import ORACLE, ORIGINAL, WINNERS, Z_95, CellView

Found = Iterator[tuple[str, bool, str]]
SURGERY = ("original", "ssd", "ssd_adaptive", "fisher", "influence")  # they change weights without training
FLAT = 0.05  # by which a value may change and be called flat
CLASSWISE = "mia_confidence_classwise"
ROUNDING = 1e-9


def _stitched_msg(views: Sequence[CellView]) -> Found:
    for view in views:
        f = view.known("f", "msg+cfw", view.named("msg"))
        if len(f) == 2:
            half = Z_95 * float(np.linalg.norm([view.error(name, "f") for name in f]))
            apart = f["msg+cfw"] - next(value for name, value in f.items() if name != "msg+cfw")
            yield view.name, abs(apart) <= half, f"difference {apart:+.3f}, 95 % within {half:.3f}"


def _stitched_fcs(views: Sequence[CellView]) -> Found:
    for view in views:
        f = view.known("f", "fcs+cfw", view.named("fcs"))
        if len(f) == 2:
            errors = {name: view.error(name, "f") for name in f}
            wider = errors["fcs+cfw"] > min(errors.values())
            yield view.name, wider, "standard errors: " + shown(errors)


def _untuned(view: CellView) -> dict[str, float]:
    """Return F of the winners with their own constants: they were chosen for another data set and network."""
    found = {name: view.value(view.with_own_constants(name), "f") for name in WINNERS}
    return {name: value for name, value in found.items() if value is not None}


def _transfer_prmq(views: Sequence[CellView]) -> Found:
    for view in views:
        f = _untuned(view)
        if "prmq" in f and len(f) > 2:
            yield view.name, f["prmq"] == max(f.values()), shown(f)


def _transfer_fcs(views: Sequence[CellView]) -> Found:
    for view in views:
        f = _untuned(view)
        if "fcs" in f and len(f) > 2:
            yield view.name, f["fcs"] <= float(np.median(list(f.values()))), shown(f)


def _attack_by_layers(view: CellView) -> dict[str, float]:
    eu = view.known(CLASSWISE, *view.by_layers("eu_k").values())
    return view.known(CLASSWISE, ORIGINAL, *eu) if eu else {}


def _attack_falls(views: Sequence[CellView]) -> Found:
    for view in views:
        values = _attack_by_layers(view) if view.forget_by() == "interclass-confusion" else {}
        if len(values) > 2:
            yield view.name, _falls(view, CLASSWISE, list(values)), shown(values)


def _attack_is_flat(views: Sequence[CellView]) -> Found:
    for view in views:
        values = _attack_by_layers(view) if view.forget_by() == "random" else {}
        if len(values) > 1:
            yield view.name, max(values.values()) - min(values.values()) <= FLAT, shown(values)


def _falls(view: CellView, metric: str, names: Sequence[str]) -> bool:
    """Return whether a metric ends lower than it begins and no step rises by more than a standard error."""
    values = view.known(metric, *names)
    noise = [float(np.hypot(view.error(a, metric), view.error(b, metric))) for a, b in pairwise(values)]
    steps = list(pairwise(values.values()))
    rises = any(after > before + allowed for (before, after), allowed in zip(steps, noise, strict=True))
    return not rises and steps[-1][1] < steps[0][0]


def _by_epochs(view: CellView) -> Iterator[list[str]]:
    """Yield the variants of CF-k that differ in EPOCHS alone, ascending."""
    families: dict[str, dict[int, str]] = {}
    for method in view.content["methods"]:
        if method["id"] == "cf_k" and view.value(method["name"], "targeted_error") is not None:
            others = {name: value for name, value in method["constants"].items() if name != "EPOCHS"}
            family = families.setdefault(json.dumps(others, sort_keys=True), {})
            family[int(method["constants"]["EPOCHS"])] = method["name"]
    for family in families.values():
        if len(family) > 1:
            yield [family[epochs] for epochs in sorted(family)]


def _more_epochs(views: Sequence[CellView]) -> Found:
    for view in views:
        if view.forget_by() == "interclass-confusion":
            for names in _by_epochs(view):
                numbers = shown(view.known("targeted_error", *names))
                yield view.name, _falls(view, "targeted_error", names), numbers


def _more_epochs_utility(views: Sequence[CellView]) -> Found:
    for view in views:
        if view.forget_by() == "interclass-confusion":
            for names in _by_epochs(view):
                values = view.known("ic_utility", *names)
                if len(values) > 1:
                    yield view.name, max(values.values()) - min(values.values()) <= FLAT, shown(values)


def _always_hit(views: Sequence[CellView]) -> Found:
    from lethe.metrics.membership.consistent_unforgettability import chance_bound  # noqa: PLC0415  loads scipy, slow to import

    for view in views:
        share = view.value(ORACLE, "consistent_unforgettability")
        if share is None:
            continue
        numbers = f"{share:.3f} of the forget set in all {view.content['n_models']} models"
        rate = view.table(ORACLE, "consistent_unforgettability").get("expected_all")
        n_forget = view.n_forget()
        if rate is not None and n_forget:
            numbers += f"; independent hits give at most {chance_bound(rate, n_forget):.3f} (95 %)"
        methods = view.known("consistent_unforgettability", *view.methods)
        shared = sum(value > 0 for value in methods.values())
        yield view.name, share > 0, f"{numbers}; so do {shared} of {len(methods)} methods"


def _distances(views: Sequence[CellView]) -> Found:
    for view in views:
        scale = view.value(ORACLE, "weight_distance")
        left_out = {view.named(method) for method in SURGERY}
        trained = view.known("weight_distance", *(name for name in view.methods if name not in left_out))
        if scale and trained:
            ratios = {name: value / scale for name, value in trained.items()}
            holds = all(0.8 <= ratio <= 1.3 for ratio in ratios.values())
            yield view.name, holds, f"over the distance of two retrainings: {shown(ratios)}"


def _formulas(views: Sequence[CellView]) -> Found:
    for view in views:
        rows = [*view.methods, ORIGINAL, ORACLE]
        known = {name: value for name in rows if (value := _retdev_fault(view, name)) is not None}
        if known:
            worst = max(known, key=lambda name: known[name])
            yield (
                view.name,
                known[worst] <= ROUNDING,
                f"{len(known)} rows, largest difference {known[worst]:.1e}, {worst}",
            )


def _retdev_fault(view: CellView, name: str) -> float | None:
    """Return how far a row's RetDev is from |1 - RR| + |1 - FR| + |1 - TR| of that row."""
    retdev = view.value(name, "retdev")
    ratios = [view.value(name, f"{part}_retention") for part in ("retain", "forget", "test")]
    known = [ratio for ratio in ratios if ratio is not None]
    return None if retdev is None or len(known) < 3 else abs(retdev - sum(abs(1 - ratio) for ratio in known))


CELL_RULES = (
    BenchmarkRule(
        "E-06", False, "CFW's repair in MSG does not change F beyond its interval",
        "F of msg and of a file called `msg+cfw` (`lethe methods stitch`)", _stitched_msg,
    ),
    BenchmarkRule(
        "E-06", False, "CFW's repair in FCS widens the interval of F",
        "F of fcs and of a file called `fcs+cfw` (`lethe methods stitch`)", _stitched_fcs,
    ),
    BenchmarkRule(
        "E-08", False, "without tuning, prmq has the highest F of the winners",
        "prmq and two other winners with their own constants", _transfer_prmq,
    ),
    BenchmarkRule(
        "E-08", False, "without tuning, fcs is in the lower half of the winners by F",
        "fcs and two other winners with their own constants", _transfer_fcs,
    ),
    BenchmarkRule(
        "E-17", False, "the class-wise attack falls with the layers of EU-k under interclass confusion",
        f"interclass confusion with {CLASSWISE} of two EU-k", _attack_falls,
    ),
    BenchmarkRule(
        "E-17", False, f"the class-wise attack moves by at most {FLAT} with EU-k's layers for a random forget set",
        f"a random forget set with {CLASSWISE} of EU-k", _attack_is_flat,
    ),
    BenchmarkRule(
        "E-18", True, "targeted error falls with the epochs of CF-k",
        "interclass confusion with two CF-k that differ in EPOCHS alone", _more_epochs,
    ),
    BenchmarkRule(
        "E-18", True, f"ic_utility changes by at most {FLAT} with the epochs of CF-k",
        "interclass confusion with ic_utility of two CF-k that differ in EPOCHS alone", _more_epochs_utility,
    ),
    BenchmarkRule(
        "E-24", True, "some forget images are called members in every exactly retrained model",
        "consistent_unforgettability", _always_hit,
    ),
    BenchmarkRule(
        "E-26", True, "methods that train end 0.8 to 1.3 times as far from a retrained model as another one does",
        "weight_distance, which takes stored weights", _distances,
    ),
    BenchmarkRule(
        "E-28", True, "RetDev is the sum of the deviations of its row (tests compare the formulas with golden values)",
        "retdev", _formulas,
    ),
)  # fmt: skip
