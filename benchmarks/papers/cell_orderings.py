"""Orderings within one cell, between methods or between variants of a method.

Sources: Triantafillou et al. 2024 (E-06, E-08), Goel et al. 2023 (E-17, E-18), Cadet et al. 2024 (E-24, E-26).
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.papers.cell_view import ORACLE, ORIGINAL, WINNERS, Z_95, CellView
from benchmarks.papers.ordering import (
    BenchmarkRule,
    Decision,
    Measured,
    all_measured,
    every,
    exceeds,
    falls,
    shown,
    within,
)

Found = Iterator[tuple[str, Decision, str]]
SURGERY = ("original", "ssd", "ssd_adaptive", "fisher", "influence")  # they change weights without training
FLAT = 0.05  # by which a value may change and be called flat
CLASSWISE = "mia_confidence_classwise"
ROUNDING = 1e-9


def _stitched_msg(views: Sequence[CellView]) -> Found:
    for view in views:
        f = all_measured(view, ["msg+cfw", view.named("msg")], "f")
        if len(f) == 2:
            stitched, msg = f["msg+cfw"], next(each for name, each in f.items() if name != "msg+cfw")
            apart = stitched.minus(msg)
            half = Z_95 * apart.error
            holds = abs(apart.value) <= half if exceeds(msg, Measured(0.0)) else None
            yield view.name, holds, f"difference {apart.value:+.3f}, 95 % within {half:.3f}; {shown(f)}"


def _stitched_fcs(views: Sequence[CellView]) -> Found:
    for view in views:
        f = all_measured(view, ["fcs+cfw", view.named("fcs")], "f")
        if len(f) == 2:
            # the standard error of a standard deviation of n runs
            share = 1.0 / math.sqrt(2.0 * (view.content["n_models"] - 1))
            errors = {name: Measured(each.error, share * each.error) for name, each in f.items()}
            plain = next(each for name, each in errors.items() if name != "fcs+cfw")
            yield view.name, exceeds(errors["fcs+cfw"], plain), "standard errors: " + shown(errors)


def _untuned(view: CellView) -> dict[str, Measured]:
    """Return F of the winners with their own constants: they were chosen for another data set and network."""
    names = {name: view.with_own_constants(name) for name in WINNERS}
    found = all_measured(view, names.values(), "f")
    return {name: found[row] for name, row in names.items() if row in found}


def _transfer_prmq(views: Sequence[CellView]) -> Found:
    for view in views:
        f = _untuned(view)
        if "prmq" in f and len(f) > 2:
            yield view.name, every(exceeds(f["prmq"], each) for name, each in f.items() if name != "prmq"), shown(f)


def _transfer_fcs(views: Sequence[CellView]) -> Found:
    for view in views:
        f = _untuned(view)
        if "fcs" in f and len(f) > 2:
            above = [exceeds(each, f["fcs"]) for name, each in f.items() if name != "fcs"]
            yield view.name, _at_least_half(above), shown(f)


def _at_least_half(decisions: Sequence[Decision]) -> Decision:
    if 2 * decisions.count(True) >= len(decisions):
        return True
    return False if 2 * decisions.count(False) > len(decisions) else None


def _attack_by_layers(view: CellView) -> dict[str, Measured]:
    eu = view.known(CLASSWISE, *view.by_layers("eu_k").values())
    return all_measured(view, [ORIGINAL, *eu], CLASSWISE) if eu else {}


def _attack_falls(views: Sequence[CellView]) -> Found:
    for view in views:
        values = _attack_by_layers(view) if view.forget_by() == "interclass-confusion" else {}
        if len(values) > 2:
            yield view.name, falls(list(values.values())), shown(values)


def _attack_is_flat(views: Sequence[CellView]) -> Found:
    for view in views:
        values = _attack_by_layers(view) if view.forget_by() == "random" else {}
        if len(values) > 1:
            yield view.name, _is_flat(values), shown(values)


def _is_flat(values: Mapping[str, Measured]) -> Decision:
    high = max(values.values(), key=lambda each: each.value)
    low = min(values.values(), key=lambda each: each.value)
    return within(high.minus(low), FLAT)


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
                values = all_measured(view, names, "targeted_error")
                yield view.name, falls(list(values.values())), shown(values)


def _more_epochs_utility(views: Sequence[CellView]) -> Found:
    for view in views:
        if view.forget_by() == "interclass-confusion":
            for names in _by_epochs(view):
                values = all_measured(view, names, "ic_utility")
                if len(values) > 1:
                    yield view.name, _is_flat(values), shown(values)


def _always_hit(views: Sequence[CellView]) -> Found:
    from lethe.metrics.membership.umia import chance_bound  # noqa: PLC0415  loads scipy, slow to import

    for view in views:
        share = view.value(ORACLE, "consistent_unforgettability")
        if share is None:
            continue
        numbers = f"{share:.3f} of the forget set in all {view.content['n_models']} models"
        rate = view.table(ORACLE, "consistent_unforgettability").get("expected_all")
        n_forget, holds = view.n_forget(), None if share > 0 else False
        if rate is not None and n_forget:
            holds = share > chance_bound(rate, n_forget) if share > 0 else False
            numbers += f"; independent hits give at most {chance_bound(rate, n_forget):.3f} (95 %)"
        methods = view.known("consistent_unforgettability", *view.methods)
        shared = sum(value > 0 for value in methods.values())
        yield view.name, holds, f"{numbers}; so do {shared} of {len(methods)} methods"


def _distances(views: Sequence[CellView]) -> Found:
    for view in views:
        scale = view.value(ORACLE, "weight_distance")
        left_out = {view.named(method) for method in SURGERY}
        names = [name for name in view.methods if name not in left_out]
        trained = all_measured(view, names, "weight_distance")
        if scale and trained:
            ratios = {name: each.times(1 / scale) for name, each in trained.items()}
            holds = every(within(ratio.minus(Measured(1.05)), 0.25) for ratio in ratios.values())
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
