"""All pairs of erasing and repairing of six methods, scored: figure 16 of Triantafillou et al. 2024, appendix A.10.

    python -m benchmarks.papers.stitching [--models 32]

Every pair is unlearned as often as there are retrained models, with matched learning rates as in the paper, and
compared with the row's own repair by paired replicates.
"""

import tempfile
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.papers.digit_models import DigitModels, Rows, State, unlearned
from benchmarks.papers.paper_page import Result, conditions, decided, run, table
from lethe.competition.file import Training
from lethe.methods.stitching import stitch
from lethe.metrics.core.softmax import log_margin
from lethe.metrics.scoring.paired_test import ScoredEntry, compare
from lethe.metrics.scoring.score import ModelOutputs, Score, score
from lethe.tuning.split_run import Unlearning, load_method

METHODS = ("cfw", "fcs", "msg", "prmq", "random_label", "salun")  # they declare both phases, and fit any network
N_TRAIN, N_FORGET, HIDDEN, NOISE, RESAMPLES = 800, 100, 64, 1.0, 100
STATEMENTS = (  # pair, what the paper's figure shows of score and F, and its words
    (("msg", "cfw"), "higher", "Seif's repair in Kookmin: positive"),
    (("fcs", "cfw"), "lower", "Seif's repair in Fanchuan: negative"),
    (("cfw", "msg"), "undecided", "a vanilla repair in Seif: a small loss, within the confidence intervals"),
)


def measure(models: int = 32) -> Result:
    """Return score, F and difference from the row's own repair of every pair, with 95 % intervals."""
    digits = DigitModels.of("mlp", {"hidden": [HIDDEN]}, noise=NOISE, recipe=Training(epochs=40, learning_rate=0.1))
    forget, retain, test = np.split(np.random.default_rng(1).permutation(len(digits.labels)), [N_FORGET, N_TRAIN])
    sets = {"forget": forget, "retain": retain, "test": test}
    retrained = _outputs(digits, digits.trained(retain, range(1, models + 1)), sets)
    original = digits.trained(np.concatenate([forget, retain]), [0])[0]
    data = digits.guest_data(original, retain=retain, forget=forget, validation=test[:200])
    scores: dict[tuple[str, str], Score] = {}
    for erase, repair in product(METHODS, repeat=2):
        unlearning = loaded(stitch(erase, repair, match_lr=True).files)
        states = [unlearned(unlearning, data, seed=seed) for seed in range(models)]
        scores[erase, repair] = score(_outputs(digits, states, sets), retrained, n_resamples=RESAMPLES)
        print(erase, repair, scores[erase, repair], flush=True)
    oracle = digits.trained(retain, range(models + 1, 2 * models + 1))
    best = score(_outputs(digits, oracle, sets), retrained, n_resamples=RESAMPLES)
    pairs = [_pair(pair, found, scores[pair[0], pair[0]]) for pair, found in scores.items()]
    return {"pairs": pairs, "oracle": {"score": best.headline, "interval": list(best.interval or ())}}


def loaded(files: Mapping[str, str]) -> Unlearning:
    """Return the function of a stitched submission."""
    with tempfile.TemporaryDirectory(prefix="lethe-pairs-") as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        return load_method(Path(folder) / "unlearning.py")


def _outputs(digits: DigitModels, states: list[State], sets: Mapping[str, Rows]) -> ModelOutputs:
    labels = {name: digits.labels[rows].numpy() for name, rows in sets.items()}
    logits = {name: np.stack([digits.logits(state, rows) for state in states]) for name, rows in sets.items()}
    right = {name: (logits[name].argmax(2) == labels[name]).mean(axis=1) for name in sets}
    return ModelOutputs(log_margin(logits["forget"], labels["forget"]), right["retain"], right["test"])


def _pair(pair: tuple[str, str], found: Score, own: Score) -> Result:
    if found.replicates is None or own.replicates is None:
        raise RuntimeError("a pair without replicates has no interval")
    apart = compare(ScoredEntry(found.headline, found.replicates), ScoredEntry(own.headline, own.replicates))
    return {
        "erase": pair[0],
        "repair": pair[1],
        "score": found.headline,
        "interval": list(found.interval or ()),
        "forgetting_quality": found.forgetting_quality,
        "forgetting_quality_interval": list(found.forgetting_quality_interval or ()),
        "difference": apart.difference,
        "difference_interval": list(apart.interval),
    }


def page(result: Result) -> str:
    """Return the page of a result."""
    pairs = {(each["erase"], each["repair"]): each for each in result["pairs"]}
    head = ["erase \\ repair", *METHODS]
    scores = [[f"{a}", *(_ends(pairs[a, b]["score"], pairs[a, b]["interval"]) for b in METHODS)] for a in METHODS]
    quality = [
        [a, *(_ends(pairs[a, b]["forgetting_quality"], pairs[a, b]["forgetting_quality_interval"]) for b in METHODS)]
        for a in METHODS
    ]
    ours = {pair: decided(each["difference_interval"]) for pair, each in pairs.items()}
    apart = {pair: _ends(each["difference"], each["difference_interval"]) for pair, each in pairs.items()}
    statements = [
        ["+".join(pair), words, apart[pair], ours[pair], _fits(ours[pair], paper)] for pair, paper, words in STATEMENTS
    ]
    stitched = [pair for pair in pairs if pair[0] != pair[1]]
    counts = {word: sum(ours[pair] == word for pair in stitched) for word in ("higher", "lower", "undecided")}
    oracle = result["oracle"]
    return f"""# Stitching: figure 16 of Triantafillou et al. 2024

{conditions("stitching", result)}

Digits with noise {NOISE:g}, {N_TRAIN} for training, {N_FORGET} of them to forget; a perceptron with {HIDDEN} hidden
units, 40 epochs. Each pair is N = {result["sizes"]["models"]} unlearned models against as many retrained ones, learning
rates matched (`lethe methods stitch --match-lr`), constants at their defaults. Intervals are of 95 %,
{RESAMPLES} delete-half replicates over models. An exact retraining scores {_ends(oracle["score"], oracle["interval"])}.

Score; a row erases, a column repairs, a method's own repair is on the diagonal:

{table(head, scores)}

Forgetting quality:

{table(head, quality)}

## The paper's statements

The difference is that of the score from the row's own repair, by paired replicates.

{table(["pair", "paper", "ours: difference [95 %]", "ours", "agrees"], statements)}

Of the {len(stitched)} stitched pairs {counts["higher"]} are above the row's own repair, {counts["lower"]} below, and
{counts["undecided"]} undecided, each by its own 95 % interval, without correction for their number.

## What cannot be compared

- The paper has N = 1024 models of a ResNet-18 on CASIA-SURF and tuned constants, and prints a figure without numbers:
  only the direction of three differences is known. F of different N is not compared.
- The constants here are defaults of other data and networks. A row whose method has nearly no effect cannot gain from a
  repair; an agreement there says little.
"""


def _ends(value: float, interval: list[float]) -> str:
    return f"{value:.4f} [{interval[0]:.4f}, {interval[1]:.4f}]"


def _fits(ours: str, paper: str) -> str:
    if ours == "undecided":
        return "undecided" if paper != "undecided" else "yes"
    return "yes" if ours == paper else "no"


if __name__ == "__main__":
    run("stitching", measure, page, __doc__)
