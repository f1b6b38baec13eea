"""Orderings that Maini et al. 2024 (TOFU) report of methods for language models: figures 3 and 4, tables 3 and 4.

Methods are compared by forget quality, log10 p, and by model utility: that of the retain set alone where a network was
not pretrained. Of a method with several rows the one with the most epochs stands for it.
"""

import math
from collections.abc import Iterator

from benchmarks.papers.cell_view import ORACLE, ORIGINAL, CellView
from benchmarks.papers.ordering import Ordering

QUALITY = "forget_quality"
RANDOM = "random network"  # the row whose weights are drawn again
P_OF_ORIGINAL, P_OF_ORACLE, GIBBERISH_UTILITY = 1e-3, 0.5, 0.1
LOG_PASSED = math.log10(0.05)


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
    yield _ordering(view, "E-13", True, statement, _below(original, P_OF_ORIGINAL), _median(original))
    statement = "retrained against retrained models have a median p above 0.5"
    below = _below(oracle, P_OF_ORACLE)
    yield _ordering(view, "E-13", True, statement, None if below is None else not below, _median(oracle))
    utility = view.utility(RANDOM)
    statement = "a network of random weights has a model utility below 0.1"
    shown = f"no row {RANDOM!r}" if utility is None else f"{utility:.3f}"
    yield _ordering(view, "E-13", True, statement, _below(utility, GIBBERISH_UTILITY), shown)


def _ascent(view: CellView) -> Iterator[Ordering]:
    """Yield the soft statements, that name methods."""
    last = {name: view.most_epochs(name) for name in ("ga", "kl_min", "graddiff")}
    before, quality = view.utility(ORIGINAL), view.value(ORIGINAL, QUALITY)
    for name in ("ga", "kl_min"):
        statement = f"{name} raises forget quality and halves model utility"
        after, forgot = view.utility(last[name]), view.value(last[name], QUALITY)
        if before is None or quality is None or after is None or forgot is None:
            yield _ordering(view, "E-13", False, statement, None, f"{name} and the original are needed")
            continue
        numbers = f"log10 p {quality:.2f} to {forgot:.2f}, utility {before:.3f} to {after:.3f}"
        yield _ordering(view, "E-13", False, statement, forgot > quality and after < before / 2, numbers)
    graddiff, ascent = view.utility(last["graddiff"]), view.utility(last["ga"])
    statement = "graddiff keeps at least the model utility of ga"
    if graddiff is None or ascent is None:
        yield _ordering(view, "E-13", False, statement, None, "graddiff and ga are needed")
        return
    yield _ordering(view, "E-13", False, statement, graddiff >= ascent, f"{graddiff:.3f}, ga {ascent:.3f}")


def _gibberish(view: CellView) -> Ordering:
    statement = "a model that answers gibberish (utility below 0.1) can pass forget quality (p above 0.05)"
    known = view.known(QUALITY, *view.methods)
    useless = {name: value for name, value in known.items() if _below(view.utility(name), GIBBERISH_UTILITY)}
    if not useless:
        return _ordering(view, "E-14", False, statement, None, "no method has a utility below 0.1")
    numbers = ", ".join(f"{name} log10 p {value:.2f}" for name, value in useless.items())
    return _ordering(view, "E-14", False, statement, max(useless.values()) > LOG_PASSED, numbers)


def _below(value: float | None, limit: float) -> bool | None:
    return None if value is None else bool(value < limit)


def _median(p: float | None) -> str:
    return f"{QUALITY} with median_p is not stored" if p is None else f"p = {p:.2g}"


def _ordering(view: CellView, name: str, hard: bool, statement: str, holds: bool | None, numbers: str) -> Ordering:
    return Ordering(name, view.name, hard, statement, holds, numbers)
