"""MIAU by saliency maps and by softmax vectors on gradually retrained models: table 26 of the MIAU paper.

    python -m benchmarks.papers.saliency_attack [--seeds 10]

Every seed draws training, forget and test digits and trains models of its own: the original, models retrained without
25, 50, 75 and 100 % of the forget set, and a second one without all of it, which the full row is.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.digit_models import DigitModels, Rows, State, mean_and_error
from benchmarks.papers.paper_page import Result, conditions, decided, reached, run, table
from lethe.competition.file import Training
from lethe.evaluation.probes.saliency import saliency_arrays
from lethe.metrics import Inputs, evaluate
from lethe.metrics.benchmark.paired_t import holm, paired_t
from lethe.metrics.core.metric_evaluation import MetricEvaluation

N_TRAIN, N_FORGET, HIDDEN, NOISE = 1200, 240, 64, 1.0
SHARES = (25, 50, 75, 100)
ATTACKS = ("saliency", "softmax")
TASKS = ("forget_retain", "forget_test", "test_retain")
METRICS = {
    "saliency": (*(f"mia_saliency_{task}" for task in TASKS), "miau_saliency"),
    "softmax": (*(f"mia_{task}" for task in TASKS), "miau"),
}
PAIRS = ((25, 50), (50, 75), (25, 75), (75, 100))
PAPER = {  # table 26: mean and standard deviation over 10 seeds
    "25 %": ((72.54, 1.41), (49.22, 2.06), (66.16, 0.63), (0.10, 0.09)),
    "50 %": ((74.45, 1.07), (49.93, 1.19), (66.31, 0.72), (11.73, 15.51)),
    "75 %": ((74.27, 0.75), (49.45, 1.06), (66.22, 0.71), (8.33, 14.02)),
    "100 %": ((72.31, 0.77), (49.75, 0.65), (66.43, 0.79), (40.02, 21.04)),
}
PAPER_TESTS = {(25, 50): (11.63, 0.021), (25, 75): (8.23, 0.048), (50, 75): (-3.40, 0.674)}  # table 5


def measure(seeds: int = 10) -> Result:
    """Return per attack and row the value of every seed, and the accuracies."""
    recipe = Training(epochs=40, batch_size=64, learning_rate=0.1)
    models = DigitModels.of("mlp", {"hidden": [HIDDEN]}, noise=NOISE, recipe=recipe)
    found = [_one_seed(models, seed) for seed in range(seeds)]
    values = {
        attack: {row: [[one[attack][row][m] for m in METRICS[attack]] for one in found] for row in found[0][attack]}
        for attack in ATTACKS
    }
    accuracies = {row: [one["accuracy"][row] for one in found] for row in found[0]["accuracy"]}
    return {"attacks": values, "accuracies": accuracies, "tests": {a: _tests(values[a]) for a in ATTACKS}}


def _one_seed(models: DigitModels, seed: int) -> dict[str, dict[str, dict[str, float]]]:
    order = np.random.default_rng(seed).permutation(len(models.labels))
    forget, retain, test = np.split(order, [N_FORGET, N_TRAIN])
    trained: dict[str, State] = {"original": models.trained(order[:N_TRAIN], [6 * seed])[0]}
    for number, share in enumerate((*SHARES, 100)):
        kept = forget[round(share / 100 * N_FORGET) :]
        name = "reference" if number == len(SHARES) else f"{share} %"
        trained[name] = models.trained(np.concatenate([retain, kept]), [6 * seed + 1 + number])[0]
    sets = {"forget": forget, "retain": retain, "test": test}
    arrays = {name: _arrays(models, state, sets) for name, state in trained.items()}
    labels = {f"{name}_labels": models.labels[rows].numpy() for name, rows in sets.items()}
    found: dict[str, dict[str, dict[str, float]]] = {attack: {} for attack in (*ATTACKS, "accuracy")}
    for name in (name for name in trained if name != "reference"):
        sides = {"unlearned": arrays[name], "retrained": arrays["reference"], "original": arrays["original"]}
        inputs = Inputs(**sides, oracle=None, shared=labels)
        for attack in ATTACKS:
            given = [(metric, {"seed": seed}) for metric in METRICS[attack]]
            evaluated = evaluate(inputs, given)
            found[attack][name] = {m: _value(evaluated[m]) for m in METRICS[attack]}
        found["accuracy"][name] = {
            part: float((arrays[name][f"{part}_logits"][0].argmax(1) == labels[f"{part}_labels"]).mean())
            for part in sets
        }
    return found


def _value(evaluation: MetricEvaluation) -> float:
    if evaluation.result is None:
        raise RuntimeError(evaluation.not_computed)
    return evaluation.result.value


def _arrays(models: DigitModels, state: State, sets: Mapping[str, Rows]) -> dict[str, NDArray[Any]]:
    inputs = {name: models.inputs(rows) for name, rows in sets.items()}
    arrays: dict[str, NDArray[Any]] = dict(saliency_arrays(models.network_of(state), [state], inputs))
    return arrays | {f"{name}_logits": models.logits(state, rows)[None] for name, rows in sets.items()}


def _tests(values: Mapping[str, list[list[float]]]) -> list[Result]:
    """Return the one-sided paired t-tests of MIAU, higher share against lower, with Holm's correction."""
    rows = {share: [seed[-1] for seed in values[f"{share} %"]] for share in SHARES}
    tests = [paired_t(rows[high], rows[low]) for low, high in PAIRS]
    corrected = holm([test.p_value for test in tests])
    return [
        {"pair": list(pair), "mean": test.mean, "interval": list(test.interval), "p": test.p_value, "holm": float(p)}
        for pair, test, p in zip(PAIRS, tests, corrected, strict=True)
    ]


def page(result: Result) -> str:
    """Return the page of a result."""
    heads = ["left out", "forget/retain, %", "forget/test, %", "test/retain, %", "MIAU"]
    parts = []
    for attack in ATTACKS:
        rows = [
            [row, *(reached(mean_and_error(column)) for column in np.array(values).T)]
            for row, values in result["attacks"][attack].items()
        ]
        parts.append(f"### Ours, {attack}\n\n{table(heads, rows)}")
    paper = [[row, *(f"{mean:.1f} (sd {sd:.1f})" for mean, sd in values)] for row, values in PAPER.items()]
    tests = [
        [
            f"{attack}: {high} % > {low} %",
            f"{test['mean']:+.1f} [{test['interval'][0]:.1f}, {test['interval'][1]:.1f}]",
            f"{test['holm']:.3f}",
            decided(test["interval"]) if test["holm"] < 0.05 else "undecided",
            _of_paper(attack, (low, high)),
        ]
        for attack in ATTACKS
        for test in result["tests"][attack]
        for low, high in [test["pair"]]
    ]
    accuracies = [
        [row, *(f"{100 * np.mean([seed[part] for seed in seeds]):.1f}" for part in ("retain", "test", "forget"))]
        for row, seeds in result["accuracies"].items()
    ]
    return f"""# The saliency attack: table 26 of the MIAU paper

{conditions("saliency_attack", result)}

Digits with noise {NOISE:g}, {N_TRAIN} for training, {N_FORGET} of them to forget; a perceptron with {HIDDEN} hidden
units, 40 epochs. Values are means over seeds with the half width of their 95 % interval. All rows are compared with a
retrained model of another seed; "100 %" is a second one.

{parts[0]}

{parts[1]}

### The paper: CIFAR-10, ResNet-18, saliency

{table(heads, paper)}

### Does MIAU rise with the share that was left out?

One-sided paired t-tests over seeds, Holm's correction over the four of an attack (the paper has none). A difference is
called undecided unless the corrected p is below 0.05.

{table(["pair", "difference [95 %]", "p", "decided", "paper, saliency"], tests)}

### Accuracy, %

{table(["left out", "retain", "test", "forget"], accuracies)}

## What cannot be compared

- Table 26's rows have a test accuracy of 91.5527 ± 0.0000 and a retain accuracy of 94.0: the baseline's of table 15,
  not those of the retrained models of table 16 (89.5 and 91.3). Which models its attack saw is not known. Its "100 %"
  has a MIAU of 40.0, where the same row of the softmax attack is 96.6 by construction.
- Data, network and the maps' size differ (64 pixels here, 3,072 there), and so do the levels of the attacks. The paper
  gives neither the maps' target nor the settings of XGBoost; ours are on the metric's
  [page](../../metrics/miau_saliency.md).
- Only directions can be held against one another: whether an attack's MIAU rises with the share.
"""


def _of_paper(attack: str, pair: tuple[int, int]) -> str:
    if attack != "saliency" or pair not in PAPER_TESTS:
        return "—"
    mean, p = PAPER_TESTS[pair]
    return f"{mean:+.1f}, p {p:.3f}"


if __name__ == "__main__":
    run("saliency_attack", measure, page, __doc__)
