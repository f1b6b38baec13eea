"""Runs a function on the public sample and estimates a score with the scorer that the server uses.

It is an estimate: a few runs against a few retrained models, on other pictures than those that count, and with the
validation set in place of the hidden test set.
"""

import json
import random
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from kit.builders import build
from kit.data_loaders import load_data, make_loaders, read_safetensors
from kit.outputs import load_outputs
from kit.scoring.attacks.family import AttackFamily
from kit.scoring.explanation import explain, score_parts
from kit.scoring.score import ModelOutputs, score

DATA = Path(__file__).parent.parent / "data"
MIN_MODELS = 4  # models on each side below which nothing can be said


@dataclass(frozen=True)
class Estimate:
    """What a few local runs say."""

    runs: int
    run_s: float
    all_runs_s: float
    retain_accuracy: float
    validation_accuracy: float
    score: float | None
    explanation: object = None

    def __str__(self):
        lines = [
            f"{self.runs} runs, {self.run_s:.2f} s each (median); all of a submission's: {self.all_runs_s:.0f} s here",
            f"accuracy: {self.retain_accuracy:.3f} on retain, {self.validation_accuracy:.3f} on validation",
        ]
        if self.score is None:
            lines.append(f"no score: it needs at least {MIN_MODELS} runs")
        else:
            lines.append(f"ESTIMATE of the score on the public sample: {self.score:.4f}")
            lines.append("(few models, other pictures, validation for the hidden test set: it only shows a direction)")
            lines += self.explanation.lines()
        return "\n".join(lines)


def estimate(unlearning, *, runs=16, style="dict"):
    """Return the estimate for a function `unlearning(net, retain, forget, validation)`."""
    data = load_data(DATA)
    about = json.loads((DATA / "kit.json").read_text())
    outputs, seconds = [], []
    for run in range(runs):
        random.seed(run)
        np.random.seed(run)
        torch.manual_seed(run)
        net = build(data.network)
        net.load_state_dict(data.original_state)
        loaders = make_loaders(data, style=style)
        started = time.perf_counter()
        returned = unlearning(net, loaders.retain, loaders.forget, loaders.validation)
        seconds.append(time.perf_counter() - started)
        outputs.append(load_outputs(returned if isinstance(returned, torch.nn.Module) else net, data))
    confidences, retain, validation = (np.stack(part) for part in zip(*outputs, strict=True))
    found, explanation = _score(confidences, retain, validation, about)
    run_s = statistics.median(seconds)
    return Estimate(
        runs=runs,
        run_s=run_s,
        all_runs_s=run_s * about["n_models"],
        retain_accuracy=float(retain.mean()),
        validation_accuracy=float(validation.mean()),
        score=found,
        explanation=explanation,
    )


def _score(confidences, retain, validation, about):
    """Return the score and what it is made of, beside exact retraining and fine-tuning; None twice of too few runs."""
    retrained = read_outputs("retrained_outputs")
    n = min(len(confidences), len(retrained.confidences))
    if n < MIN_MODELS:
        return None, None
    first = part(retrained, 0, n)

    def scored(models):
        scoring = about["scoring"]
        rules = {"delta": scoring["delta"], "cap": scoring["epsilon_cap"]}
        found = score(models, first, attacks=AttackFamily(scoring["attacks"]), **rules)
        return found.headline, score_parts(found, models, first)

    headline, own = scored(ModelOutputs(confidences[:n], retain[:n], validation[:n]))
    oracle = scored(part(retrained, n, 2 * n))[1] if len(retrained.confidences) >= 2 * n else None
    has_finetuned = (DATA / "finetuned_outputs.safetensors").is_file()
    finetuned = scored(part(read_outputs("finetuned_outputs"), 0, n))[1] if has_finetuned else None
    return headline, explain(own, oracle=oracle, others={"fine-tuning": finetuned})


def read_outputs(name):
    arrays = read_safetensors(DATA / f"{name}.safetensors")
    return ModelOutputs(*(arrays[key].numpy() for key in ("confidences", "retain_accuracy", "test_accuracy")))


def part(outputs, begin, end):
    arrays = (outputs.confidences, outputs.retain_accuracy, outputs.test_accuracy)
    return ModelOutputs(*(array[begin:end] for array in arrays))
