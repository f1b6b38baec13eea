"""Orderings that the papers report and that a benchmark's results can confirm or contradict.

Sources: Triantafillou et al. 2024 (findings), the MIAU paper, Goel et al. 2023 (confusion), Cadet et al. 2024 (Deep
Unlearn), Georgiev et al. 2024 (KLOM); those of language models are text_orderings. Hard: must hold at any scale with
a generalisation gap. Soft: reported with its numbers. A statement within its standard error, or without one, is
not decided.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations, product
from typing import Any

import numpy as np

import benchmarks.papers.cell_pair_orderings  # noqa: F401  adds to BENCHMARK_RULES
from benchmarks.papers.cell_orderings import text_orderings
from benchmarks.papers.ordering import (
    BENCHMARK_RULES,
    ORACLE,
    ORIGINAL,
    WINNERS,
    CellView,
    Decision,
    Measured,
    Ordering,
    all_measured,
    correlation_exceeds,
    every,
    exceeds,
    falls,
    measured,
    shown,
    within,
)
from lethe.benchmark.results import benchmark_results, higher_is_better
from lethe.metrics.benchmark.rankings import ranking_groups
from lethe.metrics.benchmark.training_choices import epsilon_correlation
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.reports.benchmark_tables import epsilon_by_method

MIAU_OF_ORIGINAL = 0.1007
CLOSE_GAPS = 0.02
MAX_AT_CAP = 0.5  # with two thirds at the cap, even equal hardest tenths overlap by no more than 1.5 times chance
MAX_UNCOUNTED = 0.95  # with more, the 95th percentile is of an example that KLOM's bins leave out
CONFUSIONS = ("interclass-confusion", "iid-confusion")


def check_orderings(content: Mapping[str, Any]) -> list[Ordering]:
    """Return every statement for every cell, ordered by its id."""
    views = [CellView(content, name) for name in content["cells"]]
    found = [each for rule in RULES for view in views for each in rule(view)]
    found += [each for rule in BENCHMARK_RULES for each in rule.check(views)]
    return sorted(found, key=lambda each: each.id)


def _forgetting(view: CellView) -> Iterator[Ordering]:
    if view.value(ORIGINAL, "f") is None or view.value(ORACLE, "f") is None:
        yield view.says("E-01", True, "F of the original is 0, of retraining the highest", None, "F is not stored")
        return
    original, oracle = measured(view, ORIGINAL, "f"), measured(view, ORACLE, "f")
    holds = exceeds(Measured(0.01), original)
    yield view.says("E-01", True, "F of the original is at most 0.01", holds, shown({"original": original}))
    others = all_measured(view, view.methods, "f")
    best = max(others, key=lambda name: others[name].value) if others else None
    numbers = shown({ORACLE: oracle} | ({f"best method {best}": others[best]} if best else {}))
    statement = "exact retraining has a higher F than every method"
    yield view.says("E-01", True, statement, every(exceeds(oracle, each) for each in others.values()), numbers)
    winners = all_measured(view, [view.named(name) for name in WINNERS], "f")
    statement = "at least two winners lie above finetune by 2 standard errors and a tenth of exact retraining's F"
    base = view.named("finetune")
    if base not in others or len(winners) < 2:
        yield view.says("E-01", True, statement, None, "finetune and two winners are needed")
        return
    found = [_clearly_above(each, others[base], 0.1 * oracle.value) for each in winners.values()]
    holds = True if found.count(True) >= 2 else False if len(found) - found.count(False) < 2 else None
    yield view.says("E-01", True, statement, holds, shown({base: others[base]} | winners))


def _clearly_above(value: Measured, base: Measured, by: float) -> Decision:
    apart = value.minus(base)
    return exceeds(Measured(apart.value, 2 * apart.error), Measured(0.0), by=by)


def _prmq(view: CellView) -> Iterator[Ordering]:
    winners = all_measured(view, [view.named(name) for name in WINNERS], "f")
    prmq, statement = view.named("prmq"), "prmq is among the first two winners by F"
    if prmq not in winners or len(winners) < 3:
        yield view.says("E-02", False, statement, None, "three winners are needed")
        return
    better = [exceeds(each, winners[prmq]) for name, each in winners.items() if name != prmq]
    holds = False if better.count(True) >= 2 else True if better.count(False) >= len(better) - 1 else None
    yield view.says("E-02", False, statement, holds, shown(winners))


def _gap_and_f(view: CellView) -> Iterator[Ordering]:
    gaps = view.known("accuracy_gap", *view.methods)
    f = all_measured(view, gaps, "f")
    close = [(a, b) for a, b in combinations(f, 2) if abs(gaps[a] - gaps[b]) <= CLOSE_GAPS]
    statement = "two methods have accuracy gaps within 0.02 and F, above a tenth of the oracle's, a factor of 2 apart"
    oracle = view.value(ORACLE, "f")
    if not close or oracle is None:
        needed = "accuracy_gap, f of two methods with gaps within 0.02 and of exact retraining are needed"
        yield view.says("E-04", True, statement, None, needed)
        return
    found = {pair: _twice(f[pair[0]], f[pair[1]], least=0.1 * oracle) for pair in close}
    holds = True if True in found.values() else None if None in found.values() else False
    pairs = [pair for pair, each in found.items() if each is holds][:2]
    numbers = "; ".join(f"{a} {gaps[a]:.3f}/{f[a].value:.3f}, {b} {gaps[b]:.3f}/{f[b].value:.3f}" for a, b in pairs)
    yield view.says("E-04", True, statement, holds, numbers)


def _twice(a: Measured, b: Measured, *, least: float) -> Decision:
    high, low = (a, b) if a.value >= b.value else (b, a)
    return every([exceeds(high, low.times(2)), exceeds(high, Measured(least))])


def _hard_examples(view: CellView) -> Iterator[Ordering]:
    statement = "the hardest tenths of two methods overlap more than 1.5 times chance"
    epsilon, cap = epsilon_by_method(view.content, view.name), view.epsilon_cap()
    at_cap = {name: float((values >= cap).mean()) for name, values in epsilon.items()}
    varying = {name: values for name, values in epsilon.items() if values.min() != values.max()}
    varying = {name: values for name, values in varying.items() if at_cap[name] <= MAX_AT_CAP}
    if len(varying) < 2:
        needed = (
            f"two methods whose epsilon differs between examples and is below the cap for at least {MAX_AT_CAP:.0%}"
        )
        there = f"; at the cap: {shown(at_cap)}" if at_cap else ""
        yield view.says("E-05", True, statement, None, f"{needed} of them are needed{there}")
        return
    try:
        found = epsilon_correlation(np.stack(list(varying.values())))
    except InvalidMetricInput as error:
        yield view.says("E-05", True, statement, None, str(error))
        return
    n_examples = len(next(iter(varying.values())))
    chance = -(-n_examples // 10) / n_examples
    overlap = float(str(found.table["mean_top_decile_overlap"]))
    deviation = _overlap_error(n_examples, -(-n_examples // 10))
    numbers = (
        f"overlap {overlap:.3f}, chance {chance:.3f} (se of one pair {deviation:.3f}), "
        f"mean Spearman {found.value:.3f}; {len(varying)} methods"
    )
    yield view.says("E-05", True, statement, exceeds(Measured(overlap, deviation), Measured(1.5 * chance)), numbers)


def _overlap_error(n: int, k: int) -> float:
    """Return the standard deviation of the share that two random sets of k of n have in common (hypergeometric)."""
    return float(np.sqrt(k * (k / n) * (1 - k / n) * (n - k) / (n - 1)) / k)


def _mia_gap(view: CellView) -> Iterator[Ordering]:
    yield from _beside_original(view, "E-07", "mia_gap", ("prmq", "msg"))


def _zrf(view: CellView) -> Iterator[Ordering]:
    yield from _beside_original(view, "E-12", "zrf", ("srl", "bad_teacher"), is_lowest=True)


def _beside_original(
    view: CellView, name: str, metric: str, ids: tuple[str, ...], *, is_lowest: bool = False
) -> Iterator[Ordering]:
    statement = f"{metric} of the original lies {'below' if is_lowest else 'above'} that of {', '.join(ids)}"
    others = all_measured(view, [view.named(method) for method in ids], metric)
    if view.value(ORIGINAL, metric) is None or not others:
        yield view.says(name, True, statement, None, f"{metric} of the original and of one of them is needed")
        return
    original = measured(view, ORIGINAL, metric)
    pairs = ((each, original) if is_lowest else (original, each) for each in others.values())
    holds = every(exceeds(high, low) for high, low in pairs)
    yield view.says(name, True, statement, holds, shown({"original": original} | others))


def _miau(view: CellView) -> Iterator[Ordering]:
    original = view.value(ORIGINAL, "miau")
    statement = f"MIAU of the original is {MIAU_OF_ORIGINAL} by construction"
    if original is None:
        yield view.says("E-09", True, statement, None, "miau is not stored")
        return
    yield view.says("E-09", True, statement, abs(original - MIAU_OF_ORIGINAL) < 1e-3, f"{original:.4f}")
    spreads = {name: view.spread(name, "miau") for name in view.methods if view.named("original") != name}
    known = {name: value for name, value in spreads.items() if value is not None}
    wide = [name for name, value in known.items() if value > 5]
    if known:
        numbers = f"{len(wide)} of {len(known)} methods, median {np.median(list(known.values())):.1f}"
        yield view.says("E-09", True, "MIAU spreads over runs by more than 5", 2 * len(wide) > len(known), numbers)


def _layers(view: CellView) -> Iterator[Ordering]:
    eu, cf = view.by_layers("eu_k"), view.by_layers("cf_k")
    errors = all_measured(view, [*eu.values(), *cf.values()], "targeted_error")
    if view.forget_by() not in (*CONFUSIONS, "class") or not errors:
        return
    references = all_measured(view, [ORIGINAL, ORACLE], "targeted_error")
    both = [(k, eu[k], cf[k]) for k in eu if k in cf and {eu[k], cf[k]} <= errors.keys()]
    if both:
        holds = every(exceeds(errors[b], errors[a]) for _, a, b in both)
        numbers = "; ".join(f"k={k}: {shown({'EU': errors[a], 'CF': errors[b]})}" for k, a, b in both)
        yield view.says("E-15", True, "EU-k leaves less targeted error than CF-k", holds, numbers)
    if view.forget_by() == "class" and ORACLE in references:
        oracle = references[ORACLE].value
        yield view.says("E-15", True, "exact retraining predicts no removed class", oracle == 0, f"{oracle:.3f}")
    if view.forget_by() == "interclass-confusion" and len(eu) > 1 and len(references) == 2:
        ladder = {ORIGINAL: references[ORIGINAL]} | {name: errors[name] for name in eu.values() if name in errors}
        yield from _ladder(view, ladder, references[ORACLE])


def _ladder(view: CellView, steps: Mapping[str, Measured], oracle: Measured) -> Iterator[Ordering]:
    """Yield the fall with k. EU-k of all layers is a retraining itself, so it may end on either side of the oracle."""
    values = list(steps.values())
    numbers = shown({**steps, ORACLE: oracle})
    yield view.says("E-16", True, "targeted error falls with k", falls(values), numbers)
    apart = values[-1].minus(oracle)
    statement = "the largest k ends within 0.05 of exact retraining"
    yield view.says("E-16", False, statement, within(apart, 0.05), shown({"difference": apart}))


def _no_repair(view: CellView) -> Iterator[Ordering]:
    statement = "methods without retain data leave an error on the confused classes 0.05 above exact retraining"
    others = all_measured(view, [view.named("gradient_ascent"), view.named("ssd")], "ic_error")
    if view.forget_by() != "interclass-confusion" or view.value(ORACLE, "ic_error") is None or not others:
        return
    oracle = measured(view, ORACLE, "ic_error")
    holds = every(exceeds(value, oracle, by=0.05) for value in others.values())
    yield view.says("E-20", True, statement, holds, shown({ORACLE: oracle} | others))


def _groups(view: CellView) -> Iterator[Ordering]:
    results = benchmark_results(dict(view.content))
    row = results.cells.index(view.name)
    methods = [results.methods[i] for i in results.ranked]
    values = results.metric("retdev")[row : row + 1, results.ranked]
    if np.isfinite(values).sum() < 3:
        return
    groups = ranking_groups(values, higher_is_better=higher_is_better("retdev")).groups[0]
    chosen = [view.named(name) for name in ("gradient_ascent", "fisher", "influence")]
    found = {name: int(groups[methods.index(name)]) for name in chosen if name is not None}
    if found:
        numbers = ", ".join(f"{name} in G{group}" for name, group in found.items())
        statement = "gradient ascent, Fisher and influence are not in G1 by RetDev"
        first = [method for method, group in zip(methods, groups, strict=True) if group == 1]
        last = max((measured(view, name, "retdev") for name in first), key=lambda each: each.value)
        outside = [exceeds(measured(view, name, "retdev"), last) for name, group in found.items() if group > 1]
        holds = every([*outside, *(False for group in found.values() if group == 1)])
        yield view.says("E-21", True, statement, holds, numbers)


def _indiscernibility(view: CellView) -> Iterator[Ordering]:
    statement = "the original and CF-1 are less indiscernible than msg and ct"
    low = all_measured(view, [ORIGINAL, view.by_layers("cf_k").get(1)], "indiscernibility")
    high = all_measured(view, [view.named("msg"), view.named("ct")], "indiscernibility")
    if not low or not high:
        yield view.says("E-22", True, statement, None, "one of each side is needed")
        return
    holds = every(exceeds(above, below) for above, below in product(high.values(), low.values()))
    yield view.says("E-22", True, statement, holds, f"{shown(low)}; {shown(high)}")


def _speed(view: CellView) -> Iterator[Ordering]:
    ascent = view.named("gradient_ascent")
    metric = "rte" if view.value(ascent, "rte_cpu") is None else "rte_cpu"
    times = all_measured(view, [name for name in view.methods if name != view.named("original")], metric)
    if ascent not in times:
        yield view.says("E-23", True, "gradient ascent is the fastest, all beat retraining", None, "no gradient_ascent")
        return
    fastest = sorted(times, key=lambda name: -times[name].value)[:3]
    holds = every(exceeds(times[ascent], each) for name, each in times.items() if name != ascent)
    statement = "gradient ascent is the fastest of all methods"
    yield view.says("E-23", True, statement, holds, shown({name: times[name] for name in fastest}))
    holds = every(exceeds(each, Measured(1.0)) for each in times.values())
    slow = {name: each for name, each in times.items() if not exceeds(each, Measured(1.0))}
    yield view.says("E-23", True, "every method is faster than retraining", holds, shown(slow) or "all above 1")


def _ulira(view: CellView) -> Iterator[Ordering]:
    yield from _beside_original(view, "E-25", "ulira_split", ("msg", "ct"))
    if view.value(ORACLE, "ulira_split") is not None:
        oracle = measured(view, ORACLE, "ulira_split")
        statement = "exact retraining has a U-LiRA accuracy within 0.03 of one half"
        holds = within(oracle.minus(Measured(0.5)), 0.03)
        yield view.says("E-25", True, statement, holds, shown({ORACLE: oracle}))


def _klom(view: CellView) -> Iterator[Ordering]:
    metric = "klom" if view.value(ORIGINAL, "klom_closed") is None else "klom_closed"
    original, oracle = view.value(ORIGINAL, metric), view.value(ORACLE, metric)
    klom = view.known(metric, *view.methods)
    f = view.known("f", *klom)
    if original is None or oracle is None or len(f) < 4:
        yield view.says("E-27", True, "KLOM agrees with F", None, "klom and f of four methods are needed")
        return
    if view.table(ORIGINAL, metric).get("uncounted", 0) > MAX_UNCOUNTED * view.n_forget():
        reason = "klom leaves out all of the original's margins in nearly all examples: klom_closed is needed"
        yield view.says("E-27", True, "KLOM agrees with F", None, reason)
        return
    lowest = measured(view, ORACLE, metric)
    between = every(exceeds(value, lowest) for value in all_measured(view, klom, metric).values())
    ends = f"{min(klom.values()):.2f} to {max(klom.values()):.2f}"
    numbers = f"original {original:.2f}, methods {ends}, exact retraining {oracle:.2f}"
    yield view.says("E-27", True, "no method has a KLOM below exact retraining's", between, numbers)
    from scipy.stats import spearmanr  # noqa: PLC0415  slow to import, needed here alone

    statement = "Spearman of KLOM, its mean over examples, and F over methods is below -0.7"
    # the 95th percentile is near its greatest value for every weak method, whatever F says of it
    means = {name: float(view.table(name, metric).get("mean", klom[name])) for name in f}
    if min(len(set(means.values())), len(set(f.values()))) < 2:
        yield view.says("E-27", True, statement, None, "methods whose F and KLOM differ are needed")
        return
    rho = float(spearmanr(list(means.values()), list(f.values())).statistic)
    holds = correlation_exceeds(rho, -0.7, n=len(f))
    yield view.says("E-27", True, statement, holds, f"{rho:.2f} over {len(f)} methods")


RULES: tuple[Callable[[CellView], Iterator[Ordering]], ...] = (
    _forgetting, _prmq, _gap_and_f, _hard_examples, _mia_gap, _miau, _zrf, _layers, _no_repair, _groups,
    _indiscernibility, _speed, _ulira, _klom, text_orderings,
)  # fmt: skip
