"""Orderings within one cell, between methods or between variants of a method.

Sources: Triantafillou et al. 2024 (E-06, E-08), Goel et al. 2023 (E-17, E-18), Cadet et al. 2024 (E-24, E-26), and of
language models Maini et al. 2024 (TOFU, figures 3 and 4, tables 3 and 4), by forget quality (log10 p) and by utility,
that of the retain set alone where a network was not pretrained; of a method's rows by the one with the most epochs.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.papers.ordering import (
    ORACLE,
    ORIGINAL,
    WINNERS,
    Z_95,
    CellView,
    Decision,
    Found,
    Measured,
    Ordering,
    all_measured,
    every,
    exceeds,
    falls,
    rule,
    shown,
    within,
)

SURGERY = ("original", "ssd", "ssd_adaptive", "fisher", "influence")  # they change weights without training
FLAT = 0.05  # by which a value may change and be called flat
CLASSWISE = "mia_confidence_classwise"
ROUNDING = 1e-9
QUALITY = "forget_quality"
RANDOM = "random network"  # the row whose weights are drawn again
P_OF_ORIGINAL, P_OF_ORACLE, GIBBERISH_UTILITY = 1e-3, 0.5, 0.1
LOG_PASSED = math.log10(0.05)


@rule("E-06", hard=False, needs="F of msg and of a file called `msg+cfw` (`lethe methods stitch`)")
def _stitched_msg(views: Sequence[CellView]) -> Found:
    """CFW's repair in MSG does not change F beyond its interval."""
    for view in views:
        f = all_measured(view, ["msg+cfw", view.named("msg")], "f")
        if len(f) == 2:
            stitched, msg = f["msg+cfw"], next(each for name, each in f.items() if name != "msg+cfw")
            apart = stitched.minus(msg)
            half = Z_95 * apart.error
            holds = abs(apart.value) <= half if exceeds(msg, Measured(0.0)) else None
            yield view.name, holds, f"difference {apart.value:+.3f}, 95 % within {half:.3f}; {shown(f)}"


@rule("E-06", hard=False, needs="F of fcs and of a file called `fcs+cfw` (`lethe methods stitch`)")
def _stitched_fcs(views: Sequence[CellView]) -> Found:
    """CFW's repair in FCS widens the interval of F."""
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


@rule("E-08", hard=False, needs="prmq and two other winners with their own constants")
def _transfer_prmq(views: Sequence[CellView]) -> Found:
    """without tuning, prmq has the highest F of the winners."""
    for view in views:
        f = _untuned(view)
        if "prmq" in f and len(f) > 2:
            yield view.name, every(exceeds(f["prmq"], each) for name, each in f.items() if name != "prmq"), shown(f)


@rule("E-08", hard=False, needs="fcs and two other winners with their own constants")
def _transfer_fcs(views: Sequence[CellView]) -> Found:
    """without tuning, fcs is in the lower half of the winners by F."""
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


@rule("E-17", hard=False, needs="interclass confusion with mia_confidence_classwise of two EU-k")
def _attack_falls(views: Sequence[CellView]) -> Found:
    """the class-wise attack falls with the layers of EU-k under interclass confusion."""
    for view in views:
        values = _attack_by_layers(view) if view.forget_by() == "interclass-confusion" else {}
        if len(values) > 2:
            yield view.name, falls(list(values.values())), shown(values)


@rule("E-17", hard=False, needs="a random forget set with mia_confidence_classwise of EU-k")
def _attack_is_flat(views: Sequence[CellView]) -> Found:
    """the class-wise attack moves by at most 0.05 with EU-k's layers for a random forget set."""
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


@rule("E-18", hard=True, needs="interclass confusion with two CF-k that differ in EPOCHS alone")
def _more_epochs(views: Sequence[CellView]) -> Found:
    """targeted error falls with the epochs of CF-k."""
    for view in views:
        if view.forget_by() == "interclass-confusion":
            for names in _by_epochs(view):
                values = all_measured(view, names, "targeted_error")
                yield view.name, falls(list(values.values())), shown(values)


@rule("E-18", hard=True, needs="interclass confusion with ic_utility of two CF-k that differ in EPOCHS alone")
def _more_epochs_utility(views: Sequence[CellView]) -> Found:
    """ic_utility changes by at most 0.05 with the epochs of CF-k."""
    for view in views:
        if view.forget_by() == "interclass-confusion":
            for names in _by_epochs(view):
                values = all_measured(view, names, "ic_utility")
                if len(values) > 1:
                    yield view.name, _is_flat(values), shown(values)


@rule("E-24", hard=True, needs="consistent_unforgettability")
def _always_hit(views: Sequence[CellView]) -> Found:
    """some forget images are called members in every exactly retrained model."""

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


@rule("E-26", hard=True, needs="weight_distance, which takes stored weights")
def _distances(views: Sequence[CellView]) -> Found:
    """methods that train end 0.8 to 1.3 times as far from a retrained model as another one does."""
    for view in views:
        scale = view.value(ORACLE, "weight_distance")
        left_out = {view.named(method) for method in SURGERY}
        names = [name for name in view.methods if name not in left_out]
        trained = all_measured(view, names, "weight_distance")
        if scale and trained:
            ratios = {name: each.times(1 / scale) for name, each in trained.items()}
            holds = every(within(ratio.minus(Measured(1.05)), 0.25) for ratio in ratios.values())
            yield view.name, holds, f"over the distance of two retrainings: {shown(ratios)}"


@rule("E-28", hard=True, needs="retdev")
def _formulas(views: Sequence[CellView]) -> Found:
    """RetDev is the sum of the deviations of its row."""
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


def text_orderings(view: CellView) -> Iterator[Ordering]:
    """Yield the statements of a cell whose forget quality is stored; nothing of other cells."""
    if view.known(QUALITY, ORIGINAL, ORACLE, *view.methods):
        yield from _references(view)
        yield from _ascent(view)
        yield _gibberish(view)


def _references(view: CellView) -> Iterator[Ordering]:
    """Yield the hard statements. The paper has one pair of models; here the middle one of all pairs stands for it."""
    original, oracle = (view.table(name, QUALITY).get("median_p") for name in (ORIGINAL, ORACLE))
    statement = "the original's forget quality has a median p below 0.001"
    yield view.says("E-13", True, statement, _below(original, P_OF_ORIGINAL), _median(original))
    statement = "retrained against retrained models have a median p above 0.5"
    below = _below(oracle, P_OF_ORACLE)
    yield view.says("E-13", True, statement, None if below is None else not below, _median(oracle))
    utility = view.utility(RANDOM)
    statement = "a network of random weights has a model utility below 0.1"
    shown = f"no row {RANDOM!r}" if utility is None else f"{utility:.3f}"
    yield view.says("E-13", True, statement, _below(utility, GIBBERISH_UTILITY), shown)


def _ascent(view: CellView) -> Iterator[Ordering]:
    """Yield the soft statements, that name methods."""
    last = {name: view.most_epochs(name) for name in ("ga", "kl_min", "graddiff")}
    before, quality = view.utility(ORIGINAL), view.value(ORIGINAL, QUALITY)
    for name in ("ga", "kl_min"):
        statement = f"{name} raises forget quality and halves model utility"
        after, forgot = view.utility(last[name]), view.value(last[name], QUALITY)
        if before is None or quality is None or after is None or forgot is None:
            yield view.says("E-13", False, statement, None, f"{name} and the original are needed")
            continue
        numbers = f"log10 p {quality:.2f} to {forgot:.2f}, utility {before:.3f} to {after:.3f}"
        yield view.says("E-13", False, statement, forgot > quality and after < before / 2, numbers)
    graddiff, ascent = view.utility(last["graddiff"]), view.utility(last["ga"])
    statement = "graddiff keeps at least the model utility of ga"
    if graddiff is None or ascent is None:
        yield view.says("E-13", False, statement, None, "graddiff and ga are needed")
        return
    yield view.says("E-13", False, statement, graddiff >= ascent, f"{graddiff:.3f}, ga {ascent:.3f}")


def _gibberish(view: CellView) -> Ordering:
    statement = "a model that answers gibberish (utility below 0.1) can pass forget quality (p above 0.05)"
    known = view.known(QUALITY, *view.methods)
    useless = {name: value for name, value in known.items() if _below(view.utility(name), GIBBERISH_UTILITY)}
    if not useless:
        return view.says("E-14", False, statement, None, "no method has a utility below 0.1")
    numbers = ", ".join(f"{name} log10 p {value:.2f}" for name, value in useless.items())
    return view.says("E-14", False, statement, max(useless.values()) > LOG_PASSED, numbers)


def _below(value: float | None, limit: float) -> bool | None:
    return None if value is None else bool(value < limit)


def _median(p: float | None) -> str:
    return f"{QUALITY} with median_p is not stored" if p is None else f"p = {p:.2g}"
