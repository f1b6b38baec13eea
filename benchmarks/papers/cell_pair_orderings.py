"""Orderings that compare cells which differ in one thing: the setup of the originals, or how they were trained.

Sources: Triantafillou et al. 2024 (E-03), the MIAU paper (E-10, E-11), Goel et al. 2023 (E-19).
"""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from benchmarks.papers.ordering import (
    ORACLE,
    ORIGINAL,
    CellView,
    Found,
    Measured,
    all_measured,
    correlation_exceeds,
    every,
    exceeds,
    measured,
    rule,
    shown,
)

MIN_METHODS = 4  # below it a rank correlation says nothing
MIN_GAP = 0.05  # in which two cells must differ for one to be called the more overfitted
PARTIAL = re.compile(r"retrained without (\d+) ?%")


def setups(views: Sequence[CellView]) -> Iterator[tuple[CellView, CellView]]:
    """Yield pairs of cells that differ in the setup alone: reuse-n-1, reuse-n-n."""
    for a, b in _equal_but_for(views, "scoring"):
        for one, each in ((a, b), (b, a)):
            if _setup(one) == "reuse-n-1" and _setup(each) == "reuse-n-n":
                yield one, each


def _equal_but_for(views: Sequence[CellView], section: str) -> Iterator[tuple[CellView, CellView]]:
    """Yield pairs of cells whose settings are equal but for one section."""
    sections = {"dataset", "network", "training", "splits", "scoring", "n_models"} - {section}
    keys = [json.dumps(view.settings(*sections), sort_keys=True) for view in views]
    for (a, key_a), (b, key_b) in combinations(zip(views, keys, strict=True), 2):
        if key_a == key_b and a.settings(section) != b.settings(section):
            yield a, b


def _setup(view: CellView) -> Any:
    return (view.settings("scoring")["scoring"] or {}).get("setup")


@rule("E-03", hard=False, needs="two cells that differ in `seeds` alone, with F of 4 methods that differ")
def _same_order(views: Sequence[CellView]) -> Found:
    """Spearman of F with one original and with one for each run is at least 0.7."""
    from scipy.stats import spearmanr  # noqa: PLC0415  slow to import, needed here alone

    for one, each in setups(views):
        f_one = one.known("f", *one.methods)
        f_each = each.known("f", *f_one)
        pairs = np.array([(f_one[name], value) for name, value in f_each.items()])
        if len(pairs) < MIN_METHODS or (pairs.min(axis=0) == pairs.max(axis=0)).any():
            continue
        rho = float(spearmanr(pairs[:, 0], pairs[:, 1]).statistic)
        yield (
            f"{one.name}, {each.name}",
            correlation_exceeds(rho, 0.7, n=len(pairs)),
            f"Spearman {rho:.2f} over {len(pairs)} methods",
        )


@rule("E-03", hard=True, needs="two cells that differ in `seeds` alone, with F of ssd")
def _nearly_deterministic(views: Sequence[CellView]) -> Found:
    """F of ssd is higher with an original for each run than with one."""
    for one, each in setups(views):
        low, high = (list(all_measured(view, [view.named("ssd")], "f").values()) for view in (one, each))
        if low and high:
            numbers = shown({"reuse-n-1": low[0], "reuse-n-n": high[0]})
            yield f"{one.name}, {each.name}", exceeds(high[0], low[0]), numbers


def _shares(views: Sequence[CellView]) -> dict[int, Measured]:
    """Return the mean MIAU over cells by percentage of the forget set that a model was retrained without."""
    per_cell = [found for view in views if len(found := _shares_of_cell(view)) > 1]
    common = set.intersection(*(set(found) for found in per_cell)) if per_cell else set()
    return {share: _mean([found[share] for found in per_cell]) for share in sorted(common)}


def _mean(values: Sequence[Measured]) -> Measured:
    errors = float(np.linalg.norm([each.error for each in values]))
    return Measured(sum(each.value for each in values) / len(values), errors / len(values))


def _shares_of_cell(view: CellView) -> dict[int, Measured]:
    names = {int(match[1]): name for name in view.methods if (match := PARTIAL.fullmatch(name))}
    names.setdefault(100, ORACLE)
    values = all_measured(view, names.values(), "miau")
    return {share: values[name] for share, name in names.items() if name in values}


@rule("E-10", hard=True, needs="`miau` and methods called `retrained without 25 %`, `50 %`, `75 %`")
def _full_above_partial(views: Sequence[CellView]) -> Found:
    """MIAU of exact retraining is above that of retraining without 75 % of the forget set."""
    miau = _shares(views)
    if {75, 100} <= miau.keys():
        yield (
            "mean over cells",
            exceeds(miau[100], miau[75]),
            shown({f"{share} %": value for share, value in miau.items()}),
        )


@rule("E-10", hard=False, needs="`miau` and methods called `retrained without 25 %`, `50 %`, `75 %`")
def _rises_with_share(views: Sequence[CellView]) -> Found:
    """MIAU rises with the share of the forget set that was left out."""
    miau = _shares(views)
    if len(miau) > 2:
        rises = every(exceeds(after, before) for before, after in pairwise(miau.values()))
        yield "mean over cells", rises, shown({f"{share} %": value for share, value in miau.items()})


@rule(
    "E-11",
    hard=True,
    needs="two cells that differ in training alone and by 0.05 in retain less test accuracy, with mia_gap",
)
def _overfitted(views: Sequence[CellView]) -> Found:
    """the attack on the original is further from exact retraining where the networks overfit more."""
    for pair in _equal_but_for(views, "training"):
        gaps = [_generalisation_gap(view) for view in pair]
        signals = [_signal(view) for view in pair]
        if None in gaps or None in signals or abs(gaps[0] - gaps[1]) < MIN_GAP:  # type: ignore[operator]
            continue
        more, less = (0, 1) if gaps[0] > gaps[1] else (1, 0)  # type: ignore[operator]
        strong, weak = signals[more], signals[less]
        if strong is not None and weak is not None:
            numbers = f"gaps {gaps[more]:.3f}, {gaps[less]:.3f}; |B - R| " + shown(
                {pair[more].name: strong, pair[less].name: weak}
            )
            yield f"{pair[more].name}, {pair[less].name}", exceeds(strong, weak), numbers


def _generalisation_gap(view: CellView) -> float | None:
    """Return the original model's accuracy on retain images less that on test images."""
    retain, test = view.value(ORIGINAL, "retain_accuracy"), view.value(ORIGINAL, "test_accuracy")
    return None if retain is None or test is None else retain - test


def _signal(view: CellView) -> Measured | None:
    """Return how far the original's attack accuracy is from exact retraining's: |B - R|."""
    if len(view.known("mia_forget_test", ORIGINAL, ORACLE)) < 2:
        return all_measured(view, [ORIGINAL], "mia_gap").get(ORIGINAL)
    apart = measured(view, ORIGINAL, "mia_forget_test").minus(measured(view, ORACLE, "mia_forget_test"))
    return Measured(abs(apart.value), apart.error)


@rule(
    "E-19", hard=False, needs="two cells of interclass confusion that differ in the recipe alone, with targeted_error"
)
def _regularised(views: Sequence[CellView]) -> Found:
    """EU-k leaves less targeted error where the original was trained with early stop or CutMix."""
    for pair in _equal_but_for(views, "training"):
        if pair[0].forget_by() != "interclass-confusion":
            continue
        for plain, other in (pair, pair[::-1]):
            if _is_plain(plain) and _regularises(other, plain):
                yield from _leaves_less(plain, other)


def _leaves_less(plain: CellView, regularised: CellView) -> Found:
    """EU-k of all layers is left out: it keeps nothing of the original."""
    variants = list(plain.by_layers("eu_k").values())[:-1]
    before = all_measured(plain, variants, "targeted_error")
    after = all_measured(regularised, before, "targeted_error")
    if after:
        numbers = "; ".join(f"{name}: {before[name].value:.3f} to {each.value:.3f}" for name, each in after.items())
        holds = every(exceeds(before[name], each) for name, each in after.items())
        yield f"{plain.name}, {regularised.name}", holds, numbers


def _is_plain(view: CellView) -> bool:
    return bool(_training(view).get("mixing", "none") == "none")


def _regularises(view: CellView, plain: CellView) -> bool:
    """Return whether a cell's training stops earlier or mixes examples, and is otherwise that of `plain`."""
    mine, theirs = _training(view), _training(plain)
    free = {"epochs", "mixing", "milestones"}
    alike = all(mine.get(name) == theirs.get(name) for name in mine.keys() | theirs.keys() if name not in free)
    earlier, mixed = mine["epochs"] < theirs["epochs"], not _is_plain(view)
    return bool(alike and mine["epochs"] <= theirs["epochs"] and (earlier or mixed))


def _training(view: CellView) -> dict[str, Any]:
    return dict(view.settings("training")["training"])
