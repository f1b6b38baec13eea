"""EU-k against CF-k by the number of layers: tables 2 and 7 and figure 2 of Goel et al. 2022.

    python -m benchmarks.papers.layer_depth [--seeds 8]

Interclass confusion and class removal on digits, with a perceptron of five layers. EU-k trains for as many epochs as
the original, CF-k for half of them, as in the paper.
"""

import time
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.digit_models import DigitModels, Rows, State, catalogue_method, mean_and_error, unlearned
from benchmarks.papers.paper_page import Result, conditions, decided, reached, run, table
from lethe.competition.file import Training

N_TRAIN, NOISE, EPOCHS, LR = 1000, 0.7, 40, 0.05
HIDDEN = (64, 64, 64, 64)
DEPTHS = (1, 2, 3, 4)
CONFUSED, REMOVED = (3, 8), 3  # digits that look alike; the class that is removed
TESTS = ("interclass confusion", "class removal")
MEASURES = ("memorisation", "generalisation", "test_error", "cpu_time_s")
PAPER = (  # table 2 (class removal; %) and table 7 (interclass confusion, CIFAR-10, most epochs; counts of 4000, 2000)
    ("original", "98.0 / 97.3", "75.4 / 46.4"),
    ("CF-1", "18.3 / 12.3", "—"),
    ("EU-1", "9.6 / 4.3", "—"),
    ("CF-10", "15.6 / 9.3", "30.6 / 16.8"),
    ("EU-10", "2.0 / 0.0", "—"),
    ("CF-50", "—", "14.2 / 11.4"),
    ("retrained", "0.0 / 0.0", "9.8 / 9.2"),
)


def measure(seeds: int = 8) -> Result:
    """Return per test and row the four measures of every seed; errors in percent."""
    found = {test: [_one_seed(test, seed) for seed in range(seeds)] for test in TESTS}
    rows = list(found[TESTS[0]][0])
    values = {test: {row: [one[row] for one in ones] for row in rows} for test, ones in found.items()}
    return {"values": values}


def _one_seed(test: str, seed: int) -> dict[str, list[float]]:
    recipe = Training(epochs=EPOCHS, batch_size=64, learning_rate=LR)
    digits = DigitModels.of("mlp", {"hidden": list(HIDDEN)}, noise=NOISE, recipe=recipe)
    rng = np.random.default_rng(seed)
    train, held = np.split(rng.permutation(len(digits.labels)), [N_TRAIN])
    true = digits.labels.numpy()
    classes = CONFUSED if test == TESTS[0] else (REMOVED,)
    of_classes = train[np.isin(true[train], classes)]
    forget = rng.permutation(of_classes)[: len(of_classes) // len(classes)]
    given = digits.labels.clone()
    if test == TESTS[0]:
        given[forget] = sum(CONFUSED) - given[forget]
    trained_on, retain = digits.with_labels(given), np.setdiff1d(train, forget)
    rows: dict[str, list[float]] = {}

    def add(name: str, state: State, cpu_time_s: float) -> None:
        errors = [targeted(digits, state, part, classes) for part in (forget, held)]
        wrong = float((digits.logits(state, held).argmax(1) != true[held]).mean())
        rows[name] = [*(100 * error for error in errors), 100 * wrong, cpu_time_s]

    original = trained_on.trained(train, [2 * seed])[0]
    add("original", original, 0.0)
    data = trained_on.guest_data(original, retain=retain, forget=forget, validation=held[:200])
    for method, epochs in (("cf_k", EPOCHS // 2), ("eu_k", EPOCHS)):
        for depth in DEPTHS:
            constants = {"K": depth, "EPOCHS": epochs, "LR": LR, "ANNEALING": "cosine"}
            unlearning = catalogue_method(method, constants)
            started = time.process_time()
            state = unlearned(unlearning, data, seed=seed)
            add(f"{method[:2].upper()}-{depth}", state, time.process_time() - started)
    started = time.process_time()
    retrained = trained_on.trained(retain, [2 * seed + 1])[0]
    add("retrained", retrained, time.process_time() - started)
    return rows


def targeted(digits: DigitModels, state: State, rows: Rows, classes: tuple[int, ...]) -> float:
    """Return the share of these classes' images predicted as another of them, or of one class as itself."""
    true = digits.labels[rows].numpy()
    rows, true = rows[np.isin(true, classes)], true[np.isin(true, classes)]
    predicted = digits.logits(state, rows).argmax(1)
    if len(classes) == 1:
        return float((predicted == true).mean())
    return float((np.isin(predicted, classes) & (predicted != true)).mean())


def page(result: Result) -> str:
    """Return the page of a result."""
    parts, comparisons = [], []
    heads = ["model", "forget images, %", "test images, %", "test error, %", "processor time, s"]
    for test, rows in result["values"].items():
        values = {name: np.array(seeds) for name, seeds in rows.items()}
        shown = [[name, *map(reached, map(mean_and_error, each.T), (1, 1, 1, 2))] for name, each in values.items()]
        parts.append(f"## Ours: {test}\n\n{table(heads, shown)}")
        eu = ["original", *(f"EU-{depth}" for depth in DEPTHS), "retrained"]
        for one, other in [*((f"CF-{depth}", f"EU-{depth}") for depth in DEPTHS), *pairwise(eu)]:
            comparisons.append([f"{test}: {one} minus {other}", *_difference(values[one][:, 0] - values[other][:, 0])])
    return f"""# EU-k against CF-k by depth: Goel et al. 2022

{conditions("layer_depth", result)}

Digits with noise {NOISE:g}, {N_TRAIN} for training; a perceptron with {len(HIDDEN)} hidden layers of {HIDDEN[0]}
units, so of {len(HIDDEN) + 1} layers; {EPOCHS} epochs at a learning rate of {LR:g}. EU-k takes the same, CF-k half of
the epochs, both with one cosine. Interclass confusion swaps the labels of half of the {CONFUSED[0]}s and
{CONFUSED[1]}s; class removal forgets all {REMOVED}s. The first two columns are the targeted error on the forget images
with true labels (memorisation) and on the test images of the classes (property generalisation). Means over seeds with
the half width of their 95 % interval; each seed has data, an original and a retrained model of its own. Processor times
are of a busy machine.

{parts[0]}

{parts[1]}

## The paper: targeted error on forget / test images, %

{table(["model", "class removal, ResNet-20, table 2", "interclass confusion, ResNet-110, table 7"], PAPER)}

## Differences in memorisation, points

Paired over seeds, 95 % by Student's t, without correction for their number; "undecided" where the interval holds 0.

{table(["difference", "mean ± half width", "decided"], comparisons)}

## What cannot be compared

- Table 7 prints counts; here they are divided by 4,000 forget and 2,000 test images. It has CF-k alone; EU-k under
  interclass confusion is in figure 2, which has no numbers.
- k counts layers: 1 of 5 here is 1 of 20 or of 110 there. Only orders can be held against the paper: forgetting grows
  with k under interclass confusion; EU-1 already suffices for class removal; CF-k is close to EU-k at half of the time.
- CF-k starts from an original whose training loss is nearly 0 here, so its gradients are small too; the paper's CF-k
  loses nearly what EU-k loses. A higher learning rate was not tried.
- The paper restarts its cosines and trains 62 epochs; here it is one cosine over {EPOCHS}.
"""


def _difference(values: NDArray[np.float64]) -> tuple[str, str]:
    mean, half = mean_and_error(values)
    return reached((mean, half)), decided((mean - half, mean + half))


if __name__ == "__main__":
    run("layer_depth", measure, page, __doc__)
