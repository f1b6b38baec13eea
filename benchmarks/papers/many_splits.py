"""U-LiRA over many splits of the data: figure 3 of Cadet et al. 2024.

    python -m benchmarks.papers.many_splits [--splits 16] [--forget-sets 3]

Each split trains an original on a half of the digits; each of its forget sets is then unlearned by every method. What
the attack tells apart, for each digit, are models that forgot it from models that never saw it.
"""

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.digit_models import DigitModels, Rows, State, catalogue_method, unlearned
from benchmarks.papers.paper_page import Result, conditions, run, table
from lethe.competition.file import Training
from lethe.metrics.core.softmax import log_margin
from lethe.metrics.membership.ulira import State as Seen
from lethe.metrics.membership.ulira import ulira

N_DIGITS, FORGET_SHARE, NOISE = 800, 0.2, 0.7
RECIPE = Training(epochs=30, batch_size=64, optimizer="adam", learning_rate=0.005)
METHODS = ("finetune", "ct", "msg")  # those that the paper attacks
RATES = (0.001, 0.01, 0.05)
EPOCHS = 5
SWEEP = 1_000_000  # seed of the split on which learning rates are chosen
Z_95 = 1.96
LEAST_UTILITY = 0.8  # of the retrained models' test accuracy: below it no order is judged
ORDERS = (  # what the paper reads from its figure
    ("finetune", "original", "unlearning by FT lowers the attack's accuracy"),
    ("msg", "finetune", "MSG resists the attack, FT less"),
    ("ct", "finetune", "CT resists the attack, FT less"),
    ("retrained", "msg", "retraining is the least that an attack can reach"),
)


def measure(splits: int = 16, forget_sets: int = 3) -> Result:
    """Return per row the attack's accuracy, its spread over digits, its AUC, and the estimate without each split."""
    digits = DigitModels.of("small_cnn", {"widths": [32, 64]}, noise=NOISE, recipe=RECIPE)
    rates = {method: _best_rate(digits, method) for method in METHODS}
    names = ("original", *METHODS, "retrained")
    h = {name: np.empty((splits, forget_sets, N_DIGITS)) for name in names}
    seen = np.full((splits, forget_sets, N_DIGITS), Seen.NEVER_SEEN, np.int64)
    accuracy: dict[str, list[float]] = {name: [] for name in names}
    held = np.arange(N_DIGITS, len(digits.labels))
    for split in range(splits):
        half, sets = _half(split, forget_sets)
        original = digits.trained(half, [split])[0]
        for number, forget in enumerate(sets):
            seen[split, number, half], seen[split, number, forget] = Seen.TRAINED, Seen.FORGOTTEN
            states = {"original": original} | _unlearned(digits, original, half, forget, rates, split)
            for name, state in states.items():
                h[name][split, number] = _confidences(digits, state)
                accuracy[name].append(_accuracy(digits, state, held))
    rows: Result = {}
    for name in names:
        found = ulira(h[name], seen)
        without = [
            ulira(np.delete(h[name], split, axis=0), np.delete(seen, split, axis=0)).value for split in range(splits)
        ]
        per_digit = np.array(found.per_example, np.float64)
        known = per_digit[~np.isnan(per_digit)]
        rows[name] = {
            "accuracy": found.value,
            "spread": float(known.std(ddof=1)),
            "auc": found.table["auc"],
            "digits": found.table["examples"],
            "without": without,
            "test_accuracy": float(np.mean(accuracy[name])),
        }
    return {"rates": rates, "rows": rows}


def _half(split: int, forget_sets: int) -> tuple[Rows, list[Rows]]:
    rng = np.random.default_rng([split])
    half = rng.permutation(N_DIGITS)[: N_DIGITS // 2]
    return half, [rng.permutation(half)[: round(FORGET_SHARE * len(half))] for _ in range(forget_sets)]


def _unlearned(
    digits: DigitModels, original: State, half: Rows, forget: Rows, rates: dict[str, float], seed: int
) -> dict[str, State]:
    retain = np.setdiff1d(half, forget)
    data = digits.guest_data(original, retain=retain, forget=forget, validation=_validation(digits))
    found = {
        method: unlearned(catalogue_method(method, {"LR": rate, "EPOCHS": EPOCHS}), data, seed=seed)
        for method, rate in rates.items()
    }
    return found | {"retrained": digits.trained(retain, [SWEEP + seed])[0]}


def _best_rate(digits: DigitModels, method: str) -> float:
    """Return the rate with the highest validation accuracy on a split that is not attacked."""
    half, (forget,) = _half(SWEEP, 1)
    original, retain = digits.trained(half, [SWEEP])[0], np.setdiff1d(half, forget)
    validation = _validation(digits)
    data = digits.guest_data(original, retain=retain, forget=forget, validation=validation)

    def reached(rate: float) -> float:
        state = unlearned(catalogue_method(method, {"LR": rate, "EPOCHS": EPOCHS}), data, seed=0)
        return _accuracy(digits, state, validation)

    return max(RATES, key=reached)


def _validation(digits: DigitModels) -> Rows:
    return np.arange(len(digits.labels) - 300, len(digits.labels))


def _confidences(digits: DigitModels, state: State) -> NDArray[np.float64]:
    rows = np.arange(N_DIGITS)
    return np.asarray(log_margin(digits.logits(state, rows), digits.labels[rows].numpy()), np.float64)


def _accuracy(digits: DigitModels, state: State, rows: Rows) -> float:
    return float((digits.logits(state, rows).argmax(1) == digits.labels[rows].numpy()).mean())


def half_width(without: NDArray[np.float64]) -> float:
    """Return the half width of the 95 % interval from estimates that each lack one split (the jackknife)."""
    n = len(without)
    return Z_95 * float(np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum()))


def page(result: Result) -> str:
    """Return the page of a result."""
    rows, sizes = result["rows"], result["sizes"]
    without = {name: np.array(row["without"]) for name, row in rows.items()}
    shown = [
        [
            name,
            f"{row['accuracy']:.3f} ± {half_width(without[name]):.3f}",
            f"{row['spread']:.3f}",
            f"{row['auc']:.3f}",
            f"{row['test_accuracy']:.3f}",
        ]
        for name, row in rows.items()
    ]
    orders = []
    for low, high, words in ORDERS:
        difference, half = rows[high]["accuracy"] - rows[low]["accuracy"], half_width(without[high] - without[low])
        holds = "undecided" if abs(difference) <= half else ("yes" if difference > 0 else "no")
        if rows[low]["test_accuracy"] < LEAST_UTILITY * rows["retrained"]["test_accuracy"]:
            holds = "not judged: the model is useless"
        orders.append([f"{low} below {high}", words, f"{difference:+.3f} ± {half:.3f}", holds])
    rates = ", ".join(f"{method} {rate:g}" for method, rate in result["rates"].items())
    return f"""# U-LiRA over many splits: figure 3 of Cadet et al. 2024

{conditions("many_splits", result)}

{N_DIGITS} digits with noise {NOISE:g}; each of {sizes["splits"]} splits trains a CNN on a half of them, and
{sizes["forget_sets"]} forget sets a split hold {FORGET_SHARE:.0%} of the half:
{sizes["splits"] * sizes["forget_sets"]} unlearned models a method.
A digit's densities are fitted to the models of all other splits, to confidences (`ulira`).
Learning rates, of {", ".join(f"{rate:g}" for rate in RATES)}, are those with the highest validation accuracy on a split
apart: {rates}; {EPOCHS} epochs.

{table(["row", "attack accuracy", "sd over digits", "AUC", "test accuracy"], shown)}

± is the half width of the 95 % interval over splits (jackknife without one split).
"retrained" are models trained without the forget set: what no attack should tell from models that never saw it. Values
below 0.5 are a bias of few models a digit: a held-out model lies away from the mean of the others. Compare rows, not
a row with 0.5.

## The paper's order

{table(["claim", "the paper", "difference", "holds here"], orders)}

## What cannot be compared

- The paper's values are in a figure without numbers; the order is what it states.
- It has 640 models (64 splits, 10 forget sets of 10 %) of a ResNet-18 on CIFAR-10 and a sweep of each method's
  constants; here {sizes["splits"] * sizes["forget_sets"]} small CNNs, one constant of three values, chosen by
  accuracy alone.
- Its program fits the densities to 0/1 correctness and scores models of the fit (`ulira_correctness`);
  these accuracies are of held-out models.
"""


if __name__ == "__main__":
    run("many_splits", measure, page, __doc__)
