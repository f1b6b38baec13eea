"""Orderings that compare cells which differ in one thing: the setup of the originals, or how they were trained.

Sources: Triantafillou et al. 2024 (E-03), the MIAU paper (E-10, E-11), Goel et al. 2023 (E-19).
"""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from benchmarks.papers.ordering import BenchmarkRule, shown
from lethe.reports.cell_view import ORACLE, ORIGINAL, CellView

Found = Iterator[tuple[str, bool, str]]
LEAST_METHODS = 4  # below it a rank correlation says nothing
LEAST_GAP = 0.05  # in which two cells must differ for one to be called the more overfitted
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


def _same_order(views: Sequence[CellView]) -> Found:
    from scipy.stats import spearmanr  # noqa: PLC0415  slow to import, needed here alone

    for one, each in setups(views):
        f_one = one.known("f", *one.methods)
        f_each = each.known("f", *f_one)
        pairs = np.array([(f_one[name], value) for name, value in f_each.items()])
        if len(pairs) < LEAST_METHODS or (pairs.min(axis=0) == pairs.max(axis=0)).any():
            continue
        rho = float(spearmanr(pairs[:, 0], pairs[:, 1]).statistic)
        yield f"{one.name}, {each.name}", rho >= 0.7, f"Spearman {rho:.2f} over {len(pairs)} methods"


def _nearly_deterministic(views: Sequence[CellView]) -> Found:
    for one, each in setups(views):
        low, high = one.value(one.named("ssd"), "f"), each.value(each.named("ssd"), "f")
        if low is not None and high is not None:
            yield f"{one.name}, {each.name}", high >= low, f"reuse-n-1 {low:.3f}, reuse-n-n {high:.3f}"


def _shares(views: Sequence[CellView]) -> dict[int, float]:
    """Return the mean MIAU over cells by percentage of the forget set that a model was retrained without."""
    per_cell = [found for view in views if len(found := _shares_of_cell(view)) > 1]
    common = set.intersection(*(set(found) for found in per_cell)) if per_cell else set()
    return {share: float(np.mean([found[share] for found in per_cell])) for share in sorted(common)}


def _shares_of_cell(view: CellView) -> dict[int, float]:
    names = {int(match[1]): name for name in view.methods if (match := PARTIAL.fullmatch(name))}
    names.setdefault(100, ORACLE)
    values = {share: view.value(name, "miau") for share, name in names.items()}
    return {share: value for share, value in values.items() if value is not None}


def _full_above_partial(views: Sequence[CellView]) -> Found:
    miau = _shares(views)
    if {75, 100} <= miau.keys():
        yield "mean over cells", miau[100] > miau[75], shown({f"{share} %": value for share, value in miau.items()})


def _rises_with_share(views: Sequence[CellView]) -> Found:
    miau = _shares(views)
    if len(miau) > 2:
        rises = all(before < after for before, after in pairwise(miau.values()))
        yield "mean over cells", rises, shown({f"{share} %": value for share, value in miau.items()})


def _overfitted(views: Sequence[CellView]) -> Found:
    for pair in _equal_but_for(views, "training"):
        gaps = [_generalisation_gap(view) for view in pair]
        signals = [_signal(view) for view in pair]
        if None in gaps or None in signals or abs(gaps[0] - gaps[1]) < LEAST_GAP:  # type: ignore[operator]
            continue
        more, less = (0, 1) if gaps[0] > gaps[1] else (1, 0)  # type: ignore[operator]
        numbers = ", ".join(f"{pair[i].name}: gap {gaps[i]:.3f}, |B - R| {signals[i]:.3f}" for i in (more, less))
        yield f"{pair[more].name}, {pair[less].name}", signals[more] > signals[less], numbers  # type: ignore[operator]


def _generalisation_gap(view: CellView) -> float | None:
    """Return the original model's accuracy on retain images less that on test images."""
    retain, test = view.value(ORIGINAL, "retain_accuracy"), view.value(ORIGINAL, "test_accuracy")
    return None if retain is None or test is None else retain - test


def _signal(view: CellView) -> float | None:
    """Return how far the original's attack accuracy is from exact retraining's: |B - R|."""
    original, oracle = view.value(ORIGINAL, "mia_forget_test"), view.value(ORACLE, "mia_forget_test")
    if original is None or oracle is None:
        return view.value(ORIGINAL, "mia_gap")
    return abs(original - oracle)


def _regularised(views: Sequence[CellView]) -> Found:
    for pair in _equal_but_for(views, "training"):
        if pair[0].forget_by() != "interclass-confusion":
            continue
        for plain, other in (pair, pair[::-1]):
            if _is_plain(plain) and _regularises(other, plain):
                yield from _leaves_less(plain, other)


def _leaves_less(plain: CellView, regularised: CellView) -> Found:
    """EU-k of all layers is left out: it keeps nothing of the original."""
    variants = list(plain.by_layers("eu_k").values())[:-1]
    before = plain.known("targeted_error", *variants)
    after = regularised.known("targeted_error", *before)
    if after:
        numbers = "; ".join(f"{name}: {before[name]:.3f} to {value:.3f}" for name, value in after.items())
        holds = all(value <= before[name] for name, value in after.items())
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


TWO_SETUPS = "two cells that differ in `seeds` alone, with"
PARTIAL_MODELS = "`miau` and methods called `retrained without 25 %`, `50 %`, `75 %`"
PAIR_RULES = (
    BenchmarkRule(
        "E-03", False, "Spearman of F with one original and with one for each run is at least 0.7",
        f"{TWO_SETUPS} F of {LEAST_METHODS} methods that differ", _same_order,
    ),
    BenchmarkRule(
        "E-03", True, "F of ssd is not lower with an original for each run than with one",
        f"{TWO_SETUPS} F of ssd", _nearly_deterministic,
    ),
    BenchmarkRule(
        "E-10", True, "MIAU of exact retraining is above that of retraining without 75 % of the forget set",
        PARTIAL_MODELS, _full_above_partial,
    ),
    BenchmarkRule(
        "E-10", False, "MIAU rises with the share of the forget set that was left out",
        PARTIAL_MODELS, _rises_with_share,
    ),
    BenchmarkRule(
        "E-11", True, "the attack on the original is further from exact retraining where the networks overfit more",
        f"two cells that differ in training alone and by {LEAST_GAP} in the gap from retain to test accuracy, with "
        "mia_forget_test or mia_gap",
        _overfitted,
    ),
    BenchmarkRule(
        "E-19", False, "EU-k leaves less targeted error where the original was trained with early stop or CutMix",
        "interclass confusion in two cells that differ in the recipe alone, with targeted_error of EU-k", _regularised,
    ),
)  # fmt: skip
