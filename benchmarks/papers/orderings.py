"""Orderings that the papers report and that a benchmark's results can confirm or contradict.

Sources: Triantafillou et al. 2024 (findings), the MIAU paper, Goel et al. 2023 (confusion), Cadet et al. 2024 (Deep
Unlearn), Georgiev et al. 2024 (KLOM); those of language models are in text_orderings. Hard: must hold at any scale with
a generalisation gap. Soft: reported with its numbers.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from benchmarks.papers.cell_orderings import CELL_RULES
from benchmarks.papers.cell_pair_orderings import PAIR_RULES
from benchmarks.papers.ordering import Ordering, shown
from benchmarks.papers.text_orderings import text_orderings
from lethe.benchmark.results import benchmark_results, higher_is_better
from lethe.metrics.benchmark.epsilon_correlation import epsilon_correlation
from lethe.metrics.benchmark.ranking_groups import ranking_groups
from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.reports.benchmark_tables import epsilon_by_method
from lethe.reports.cell_view import ORACLE, ORIGINAL, WINNERS, CellView

MIAU_OF_ORIGINAL = 0.1007
CLOSE_GAPS, LEAST_F = 0.02, 0.005
MOST_AT_CAP = 0.5  # with two thirds at the cap, even equal hardest tenths overlap by no more than 1.5 times chance
MOST_UNCOUNTED = 0.95  # with more, the 95th percentile is of an example that KLOM's bins leave out
CONFUSIONS = ("interclass-confusion", "iid-confusion")


def check_orderings(content: Mapping[str, Any]) -> list[Ordering]:
    """Return every statement for every cell, ordered by its id."""
    views = [CellView(content, name) for name in content["cells"]]
    found = [each for rule in RULES for view in views for each in rule(view)]
    found += [each for rule in (*PAIR_RULES, *CELL_RULES) for each in rule.check(views)]
    return sorted(found, key=lambda each: each.id)


def _decided(view: CellView, name: str, hard: bool, statement: str, holds: bool, numbers: str) -> Ordering:
    return Ordering(name, view.name, hard, statement, bool(holds), numbers)


def _open(view: CellView, name: str, hard: bool, statement: str, reason: str) -> Ordering:
    return Ordering(name, view.name, hard, statement, None, reason)


def _forgetting(view: CellView) -> Iterator[Ordering]:
    original, oracle = view.value(ORIGINAL, "f"), view.value(ORACLE, "f")
    if original is None or oracle is None:
        yield _open(view, "E-01", True, "F of the original is 0, of exact retraining the highest", "F is not stored")
        return
    yield _decided(view, "E-01", True, "F of the original is at most 0.01", original <= 0.01, f"{original:.4f}")
    others = view.known("f", *view.methods)
    best = max(others, key=lambda name: others[name]) if others else ""
    numbers = f"exact retraining {oracle:.3f}, best method {best} {others.get(best, 0.0):.3f}"
    yield _decided(
        view, "E-01", True, "exact retraining has a higher F than every method", oracle > others.get(best, 0.0), numbers
    )
    finetune = view.named("finetune")
    winners = view.known("f", *(view.named(name) for name in WINNERS))
    statement = "at least two winners lie above finetune by 2 standard errors"
    base = view.value(finetune, "f")
    if base is None or len(winners) < 2:
        yield _open(view, "E-01", True, statement, "finetune and two winners are needed")
        return
    above = [
        name for name, f in winners.items() if f > base + 2 * np.hypot(view.error(name, "f"), view.error(finetune, "f"))
    ]
    yield _decided(view, "E-01", True, statement, len(above) >= 2, f"finetune {base:.3f}; {shown(winners)}")


def _prmq(view: CellView) -> Iterator[Ordering]:
    winners = view.known("f", *(view.named(name) for name in WINNERS))
    prmq = view.named("prmq")
    if prmq not in winners or len(winners) < 3:
        yield _open(view, "E-02", False, "prmq is among the first two winners by F", "three winners are needed")
        return
    place = sorted(winners.values(), reverse=True).index(winners[prmq]) + 1
    yield _decided(view, "E-02", False, "prmq is among the first two winners by F", place <= 2, shown(winners))


def _gap_and_f(view: CellView) -> Iterator[Ordering]:
    gaps = view.known("accuracy_gap", *view.methods)
    f = view.known("f", *gaps)
    close = [(a, b) for a, b in combinations(f, 2) if abs(gaps[a] - gaps[b]) <= CLOSE_GAPS]
    pairs = [(a, b) for a, b in close if _twice(f[a], f[b])]
    statement = "two methods have accuracy gaps within 0.02 and F a factor of 2 apart"
    if not close:
        yield _open(view, "E-04", True, statement, "accuracy_gap, f of two methods with gaps within 0.02 are needed")
        return
    shown = "; ".join(f"{a} {gaps[a]:.3f}/{f[a]:.3f}, {b} {gaps[b]:.3f}/{f[b]:.3f}" for a, b in pairs[:2])
    yield _decided(view, "E-04", True, statement, bool(pairs), shown or "no such pair")


def _twice(a: float, b: float) -> bool:
    return max(a, b) >= LEAST_F and max(a, b) >= 2 * min(a, b)


def _hard_examples(view: CellView) -> Iterator[Ordering]:
    statement = "the hardest tenths of two methods overlap more than 1.5 times chance"
    epsilon, cap = epsilon_by_method(view.content, view.name), view.epsilon_cap()
    at_cap = {name: float((values >= cap).mean()) for name, values in epsilon.items()}
    varying = {name: values for name, values in epsilon.items() if values.min() != values.max()}
    varying = {name: values for name, values in varying.items() if at_cap[name] <= MOST_AT_CAP}
    if len(varying) < 2:
        needed = (
            f"two methods whose epsilon differs between examples and is below the cap for at least {MOST_AT_CAP:.0%}"
        )
        there = f"; at the cap: {shown(at_cap)}" if at_cap else ""
        yield _open(view, "E-05", True, statement, f"{needed} of them are needed{there}")
        return
    try:
        found = epsilon_correlation(np.stack(list(varying.values())))
    except InvalidMetricInput as error:
        yield _open(view, "E-05", True, statement, str(error))
        return
    n_examples = len(next(iter(varying.values())))
    chance = -(-n_examples // 10) / n_examples
    overlap = float(str(found.table["mean_top_decile_overlap"]))
    numbers = f"overlap {overlap:.3f}, chance {chance:.3f}, mean Spearman {found.value:.3f}; {len(varying)} methods"
    yield _decided(view, "E-05", True, statement, overlap > 1.5 * chance, numbers)


def _mia_gap(view: CellView) -> Iterator[Ordering]:
    yield from _original_above(view, "E-07", "mia_gap", ("prmq", "msg"))


def _original_above(view: CellView, name: str, metric: str, ids: tuple[str, ...]) -> Iterator[Ordering]:
    statement = f"{metric} of the original lies above that of {', '.join(ids)}"
    original = view.value(ORIGINAL, metric)
    others = view.known(metric, *(view.named(method) for method in ids))
    if original is None or not others:
        yield _open(view, name, True, statement, f"{metric} of the original and of one of them is needed")
        return
    holds = all(original > value for value in others.values())
    yield _decided(view, name, True, statement, holds, f"original {original:.3g}; {shown(others)}")


def _miau(view: CellView) -> Iterator[Ordering]:
    original = view.value(ORIGINAL, "miau")
    statement = f"MIAU of the original is {MIAU_OF_ORIGINAL} by construction"
    if original is None:
        yield _open(view, "E-09", True, statement, "miau is not stored")
        return
    yield _decided(view, "E-09", True, statement, abs(original - MIAU_OF_ORIGINAL) < 1e-3, f"{original:.4f}")
    spreads = {name: view.spread(name, "miau") for name in view.methods if view.named("original") != name}
    known = {name: value for name, value in spreads.items() if value is not None}
    wide = [name for name, value in known.items() if value > 5]
    if known:
        numbers = f"{len(wide)} of {len(known)} methods, median {np.median(list(known.values())):.1f}"
        yield _decided(view, "E-09", True, "MIAU spreads over runs by more than 5", 2 * len(wide) > len(known), numbers)


def _zrf(view: CellView) -> Iterator[Ordering]:
    statement = "ZRF of srl and bad_teacher lies above that of the original"
    original = view.value(ORIGINAL, "zrf")
    others = view.known("zrf", view.named("srl"), view.named("bad_teacher"))
    if original is None or not others:
        yield _open(view, "E-12", True, statement, "zrf of the original and of one of them is needed")
        return
    holds = all(value > original for value in others.values())
    yield _decided(view, "E-12", True, statement, holds, f"original {original:.3g}; {shown(others)}")


def _layers(view: CellView) -> Iterator[Ordering]:
    eu, cf = view.by_layers("eu_k"), view.by_layers("cf_k")
    errors = view.known("targeted_error", *eu.values(), *cf.values())
    if view.forget_by() not in (*CONFUSIONS, "class") or not errors:
        return
    original, oracle = view.value(ORIGINAL, "targeted_error"), view.value(ORACLE, "targeted_error")
    both = [(k, eu[k], cf[k]) for k in eu if k in cf and {eu[k], cf[k]} <= errors.keys()]
    if both:
        holds = all(errors[a] <= errors[b] + _noise(view, a, b) for _, a, b in both)
        numbers = "; ".join(f"k={k}: EU {errors[a]:.3f}, CF {errors[b]:.3f}" for k, a, b in both)
        yield _decided(view, "E-15", True, "EU-k leaves no more targeted error than CF-k", holds, numbers)
    if view.forget_by() == "class" and oracle is not None:
        yield _decided(view, "E-15", True, "exact retraining predicts no removed class", oracle == 0, f"{oracle:.3f}")
    if view.forget_by() == "interclass-confusion" and len(eu) > 1 and original is not None and oracle is not None:
        yield from _ladder(view, [ORIGINAL, *(name for name in eu.values() if name in errors)], oracle)


def _ladder(view: CellView, names: list[str], oracle: float) -> Iterator[Ordering]:
    """Yield the fall with k. EU-k of all layers is a retraining itself, so it may end on either side of the oracle."""
    values = [view.value(name, "targeted_error") or 0.0 for name in names]
    steps = zip(pairwise(values), pairwise(names), strict=True)
    falls = all(after <= before + _noise(view, *pair) for (before, after), pair in steps)
    numbers = ", ".join(f"{name} {value:.3f}" for name, value in zip(names, values, strict=True))
    statement = "targeted error falls with k, within one standard error"
    yield _decided(view, "E-16", True, statement, falls, f"{numbers}, {ORACLE} {oracle:.3f}")
    apart = values[-1] - oracle
    noise = 2 * _noise(view, names[-1], ORACLE)
    statement = "the largest k ends within 2 standard errors of exact retraining"
    yield _decided(view, "E-16", False, statement, abs(apart) <= noise, f"difference {apart:+.3f}, 2 se {noise:.3f}")


def _noise(view: CellView, a: str, b: str) -> float:
    return float(np.hypot(view.error(a, "targeted_error"), view.error(b, "targeted_error")))


def _no_repair(view: CellView) -> Iterator[Ordering]:
    statement = "methods without retain data leave an error on the confused classes 0.05 above exact retraining"
    oracle = view.value(ORACLE, "ic_error")
    others = view.known("ic_error", view.named("gradient_ascent"), view.named("ssd"))
    if view.forget_by() != "interclass-confusion" or oracle is None or not others:
        return
    holds = all(value > oracle + 0.05 for value in others.values())
    yield _decided(view, "E-20", True, statement, holds, f"exact retraining {oracle:.3f}; {shown(others)}")


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
        yield _decided(view, "E-21", True, statement, all(group > 1 for group in found.values()), numbers)


def _indiscernibility(view: CellView) -> Iterator[Ordering]:
    statement = "the original and CF-1 are less indiscernible than msg and ct"
    low = view.known("indiscernibility", ORIGINAL, view.by_layers("cf_k").get(1))
    high = view.known("indiscernibility", view.named("msg"), view.named("ct"))
    if not low or not high:
        yield _open(view, "E-22", True, statement, "one of each side is needed")
        return
    holds = max(low.values()) < min(high.values())
    yield _decided(view, "E-22", True, statement, holds, f"{shown(low)}; {shown(high)}")


def _speed(view: CellView) -> Iterator[Ordering]:
    times = view.known("rte", *(name for name in view.methods if name != view.named("original")))
    ascent = view.named("gradient_ascent")
    if ascent not in times:
        yield _open(view, "E-23", True, "gradient ascent is the fastest, and all beat retraining", "no gradient_ascent")
        return
    fastest = sorted(times, key=lambda name: -times[name])[:3]
    first = {name: times[name] for name in fastest}
    holds = times[ascent] >= max(times.values())
    yield _decided(view, "E-23", True, "gradient ascent is the fastest of all methods", holds, shown(first))
    slow = {name: value for name, value in times.items() if value <= 1}
    yield _decided(view, "E-23", True, "every method is faster than retraining", not slow, shown(slow) or "all above 1")


def _ulira(view: CellView) -> Iterator[Ordering]:
    yield from _original_above(view, "E-25", "ulira_split", ("msg", "ct"))
    oracle = view.value(ORACLE, "ulira_split")
    if oracle is not None:
        statement = "exact retraining has a U-LiRA accuracy within 0.03 of one half"
        yield _decided(view, "E-25", True, statement, abs(oracle - 0.5) <= 0.03, f"{oracle:.3f}")


def _klom(view: CellView) -> Iterator[Ordering]:
    metric = "klom" if view.value(ORIGINAL, "klom_closed") is None else "klom_closed"
    original, oracle = view.value(ORIGINAL, metric), view.value(ORACLE, metric)
    klom = view.known(metric, *view.methods)
    f = view.known("f", *klom)
    if original is None or oracle is None or len(f) < 4:
        yield _open(view, "E-27", True, "KLOM agrees with F", "klom and f of four methods are needed")
        return
    if view.table(ORIGINAL, metric).get("uncounted", 0) > MOST_UNCOUNTED * view.n_forget():
        reason = "klom leaves out all of the original's margins in nearly all examples: klom_closed is needed"
        yield _open(view, "E-27", True, "KLOM agrees with F", reason)
        return
    between = all(value >= oracle for value in klom.values())
    ends = f"{min(klom.values()):.2f} to {max(klom.values()):.2f}"
    numbers = f"original {original:.2f}, methods {ends}, exact retraining {oracle:.2f}"
    yield _decided(view, "E-27", True, "no method has a KLOM below exact retraining's", between, numbers)
    from scipy.stats import spearmanr  # noqa: PLC0415  slow to import, needed here alone

    statement = "Spearman of KLOM, its mean over examples, and F over methods is below -0.7"
    # the 95th percentile is near its greatest value for every weak method, whatever F says of it
    means = {name: float(view.table(name, metric).get("mean", klom[name])) for name in f}
    if min(len(set(means.values())), len(set(f.values()))) < 2:
        yield _open(view, "E-27", True, statement, "methods whose F and KLOM differ are needed")
        return
    rho = float(spearmanr(list(means.values()), list(f.values())).statistic)
    yield _decided(view, "E-27", True, statement, rho < -0.7, f"{rho:.2f}")


RULES: tuple[Callable[[CellView], Iterator[Ordering]], ...] = (
    _forgetting, _prmq, _gap_and_f, _hard_examples, _mia_gap, _miau, _zrf, _layers, _no_repair, _groups,
    _indiscernibility, _speed, _ulira, _klom, text_orderings,
)  # fmt: skip
