"""Relearn time under several thresholds and rates: Golatkar et al. 2020, and what Goel et al. 2022 say of it.

    python -m benchmarks.papers.relearn_time [--seeds 8]

Unlearned models are trained on the forget set alone until its loss is back near the original's.
"""

from itertools import product

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.digit_models import DigitModels, State, catalogue_method, mean_and_error, unlearned
from benchmarks.papers.paper_page import Result, conditions, decided, reached, run, table
from lethe.competition.file import Training
from lethe.evaluation.probes.relearn import mean_loss, relearn_epochs

N_TRAIN, N_FORGET, NOISE, EPOCHS, LR = 1000, 100, 1.0, 40, 0.1
MOST_EPOCHS = 100
METHODS = {
    "finetune": ("finetune", {"LR": 0.05, "EPOCHS": 5}),
    "EU-1": ("eu_k", {"K": 1, "LR": LR, "EPOCHS": 20}),
    "CF-1": ("cf_k", {"K": 1, "LR": LR, "EPOCHS": 20}),
    "CF-2": ("cf_k", {"K": 2, "LR": LR, "EPOCHS": 20}),
    "random_label": ("random_label", {}),
}
REFERENCES = ("retrained", "retrained again")
THRESHOLDS = (0.05, 19.0)  # the loss may be so much above the original's
RATE_SHARES = (0.1, 1.0)  # of the training's learning rate
SETTINGS = tuple(f"{1 + slack:g} x loss, rate x {share:g}" for slack, share in product(THRESHOLDS, RATE_SHARES))


def measure(seeds: int = 8) -> Result:
    """Return per row and seed the epochs of every setting, at most 100, and the test accuracy."""
    found = [_one_seed(seed) for seed in range(seeds)]
    return {"epochs": {name: [one[name] for one in found] for name in found[0]}}


def _one_seed(seed: int) -> dict[str, list[float]]:
    recipe = Training(epochs=EPOCHS, batch_size=64, learning_rate=LR)
    digits = DigitModels.of("mlp", {"hidden": [64, 64]}, noise=NOISE, recipe=recipe)
    forget, retain, held = np.split(np.random.default_rng(seed).permutation(len(digits.labels)), [N_FORGET, N_TRAIN])
    original = digits.trained(np.concatenate([forget, retain]), [3 * seed])[0]
    data = digits.guest_data(original, retain=retain, forget=forget, validation=held[:200])
    states: dict[str, State] = {"original": original}
    for name, (method, constants) in METHODS.items():
        states[name] = unlearned(catalogue_method(method, constants), data, seed=seed)
    for number, name in enumerate(REFERENCES):
        states[name] = digits.trained(retain, [3 * seed + 1 + number])[0]
    images, labels = digits.inputs(forget), digits.labels[forget]
    net = digits.network_of(original)
    loss = mean_loss(net, images, labels)
    true = digits.labels[held].numpy()
    found = {}
    for name, state in states.items():
        epochs = [
            relearn_epochs(
                net, state, images, labels,
                original_loss=loss, learning_rate=share * LR, max_epochs=MOST_EPOCHS, slack=slack, seed=seed,
            )
            for slack, share in product(THRESHOLDS, RATE_SHARES)
        ]  # fmt: skip
        right = float((digits.logits(state, held).argmax(1) == true).mean())
        found[name] = [*map(float, epochs), right]
    return found


def page(result: Result) -> str:
    """Return the page of a result."""
    epochs = {name: np.array(seeds) for name, seeds in result["epochs"].items()}
    shown = [
        [name, *(_epochs(column) for column in values.T[:-1]), f"{values[:, -1].mean():.3f}"]
        for name, values in epochs.items()
    ]
    ratios = [
        [name, *(f"{values[:, i].mean() / epochs['retrained'][:, i].mean():.2f}" for i in range(len(SETTINGS)))]
        for name, values in epochs.items()
    ]
    differences = [
        [name, *(_decided(values[:, i] - epochs["retrained"][:, i]) for i in range(len(SETTINGS)))]
        for name, values in epochs.items()
        if name != "retrained"
    ]
    return f"""# Relearn time: Golatkar et al. 2020, Goel et al. 2022

{conditions("relearn_time", result)}

Digits with noise {NOISE:g}, {N_TRAIN} for training, {N_FORGET} random ones of them to forget; a perceptron with two
hidden layers of 64 units, {EPOCHS} epochs. Epochs of plain SGD on the forget set alone until its mean loss is at most
so many times the original's, at most {MOST_EPOCHS} ("(n)": n models were stopped there). Means over seeds with the half
width of their 95 % interval.

{table(["model", *SETTINGS, "test accuracy"], shown)}

## Ratio of the means to the retrained models'

1 is the aim of `relearn_time`; below it, knowledge is left.

{table(["model", *SETTINGS], ratios)}

## Against the retrained models, paired over seeds

A row is lower or higher where the 95 % interval of the mean difference does not hold 0 (Student's t, no correction).

{table(["model", *SETTINGS], differences)}

## What the papers say, and what cannot be compared

- Golatkar et al. 2020 and Goel et al. 2022 (table 1) name relearn time; Goel et al. print no values for it, so
  there is no number to hold against ours. They say that it needs a threshold and is not comparable across training
  procedures: the four columns are one set of models under two thresholds and two rates.
- Stopped models make a mean too small and hide differences; a column whose models are all stopped says nothing.
"""


def _epochs(column: NDArray[np.float64]) -> str:
    stopped = int((column >= MOST_EPOCHS).sum())
    return reached(mean_and_error(column)) + (f" ({stopped})" if stopped else "")


def _decided(difference: NDArray[np.float64]) -> str:
    mean, half = mean_and_error(difference)
    return decided((mean - half, mean + half))


if __name__ == "__main__":
    run("relearn_time", measure, page, __doc__)
