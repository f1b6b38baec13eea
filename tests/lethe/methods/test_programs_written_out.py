"""Methods beside their authors' formulas, written out here, where no trajectory of the program itself is stored.

`tests/golden/formulas.json` holds what docs/methods/conformance.md says of them.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from lethe.methods import langevin
from tests.golden.trajectories.frame import flat
from tests.golden.trajectories.making import made_frame
from tests.golden.trajectories.recipes import Recipe
from tests.golden.trajectories.run import SEED, as_stored, run

RECORDED = {
    row["setting"]: row for row in json.loads((Path(__file__).parents[2] / "golden" / "formulas.json").read_text())
}
STEPS, RATE, PULL, NOISE, BOUND = 12, 0.5, 0.1, 0.03, 1.0
EXAMPLES, FEATURES, CLASSES = 40, 7, 5


class Scores(nn.Module):
    """A linear model without a constant, its weights as the programs keep them: (features, classes) or (features,)."""

    def __init__(self, weights):
        super().__init__()
        self.weights = nn.Parameter(weights.clone())

    def forward(self, inputs):
        found = inputs @ self.weights
        return found if found.dim() == 2 else torch.stack([torch.zeros_like(found), found], dim=1)


def drawn(*shape, seed):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def langevin_weights(monkeypatch, start, inputs, labels, *, before_clipping):
    """Return the weights after the method's steps, each on all examples."""
    constants = {"SIGMA": NOISE, "CLIP": BOUND, "L2": PULL, "L2_CLIPPED": before_clipping, "AT_ONCE": 16}
    for name, value in constants.items():
        monkeypatch.setattr(langevin, name, value)
    net = Scores(start)
    torch.manual_seed(3)
    langevin.repair(net, [{"image": inputs, "label": labels}], None, None, {}, STEPS, RATE)
    return net.weights.detach()


def many_classes(start, inputs, labels):
    """Graph-COM/Langevin_unlearning at fea22c5, langevin.py: unadjusted_langevin_algorithm_multiclass."""
    torch.manual_seed(3)
    weights, truth = start.clone(), nn.functional.one_hot(labels, CLASSES).double()
    for _ in range(STEPS):
        errors = (inputs @ weights).softmax(-1) - truth
        total = torch.zeros_like(weights)
        for example, error in zip(inputs, errors, strict=True):
            gradient = torch.outer(example, error)
            size = gradient.norm()
            total += gradient / size * BOUND if size > BOUND else gradient
        step = RATE * (total / len(inputs) + PULL * weights)
        weights = weights - step + np.sqrt(2 * RATE * NOISE**2) * torch.randn(FEATURES, CLASSES)
    return weights


def two_classes(start, inputs, signs):
    """The same file: unadjusted_langevin_algorithm, which clips what L2 was added to."""
    torch.manual_seed(3)
    weights = start.clone()
    for _ in range(STEPS):
        total = torch.zeros_like(weights)
        for example, sign in zip(inputs, signs, strict=True):
            gradient = example * (torch.sigmoid(sign * (example @ weights)) - 1) * sign + PULL * weights
            size = gradient.norm()
            total += gradient * (BOUND / size) if size > BOUND else gradient
        weights = weights - RATE * total / len(inputs) + np.sqrt(2 * RATE * NOISE**2) * torch.randn(FEATURES)
    return weights


def langevin_of_many_classes(monkeypatch):
    start, inputs = drawn(FEATURES, CLASSES, seed=0), drawn(EXAMPLES, FEATURES, seed=1)
    labels = torch.from_numpy(np.random.default_rng(2).integers(0, CLASSES, EXAMPLES))
    found = langevin_weights(monkeypatch, start, inputs, labels, before_clipping=False)
    return found - many_classes(start, inputs, labels)


def langevin_of_two_classes(monkeypatch):
    start, inputs = drawn(FEATURES, seed=0), drawn(EXAMPLES, FEATURES, seed=1)
    labels = torch.from_numpy(np.random.default_rng(2).integers(0, 2, EXAMPLES))
    found = langevin_weights(monkeypatch, start, inputs, labels, before_clipping=True)
    return found - two_classes(start, inputs, 2 * labels - 1)


def selective_forgetting(frame, alpha, removed):
    """Return weights by AdityaGolatkar/SelectiveForgetting at 6bf8e6f, main.ipynb: hessian and get_mean_var.

    removed: the class that is forgotten; None as the program does where only some of its examples are.
    """
    torch.manual_seed(SEED)
    net = frame.network().eval()
    examples = frame.examples("retain", "class")
    squares = [torch.zeros_like(parameter) for parameter in net.parameters()]
    for sample in DataLoader(examples):
        logits = net(sample["image"])
        n_classes = logits.shape[1]
        for label in range(n_classes):
            loss = nn.functional.cross_entropy(logits, torch.tensor([label]))
            gradients = torch.autograd.grad(loss, list(net.parameters()), retain_graph=True)
            for square, gradient in zip(squares, gradients, strict=True):
                square.add_(logits.softmax(-1)[0, label].detach() * gradient**2)
    with torch.no_grad():
        for parameter, square in zip(net.parameters(), squares, strict=True):
            last = parameter.shape[0] == n_classes
            spread = (1.0 / (square / len(examples) + 1e-8)).clamp(max=1e3)
            spread = alpha * (spread.clamp(max=1e2) if last else spread)
            if parameter.ndim > 1:
                spread = spread.mean(dim=1, keepdim=True).expand_as(parameter).clone()
            if last and removed is not None:
                parameter[removed], spread[removed] = 0.0, 0.0001
            if last or parameter.ndim == 1:
                spread *= 10
            parameter.add_(spread.sqrt() * torch.empty_like(parameter).normal_())
    return torch.from_numpy(flat(net)[0])


def fisher_of_a_class(_monkeypatch):
    recipe = Recipe("fisher", {"preset": "selective-forgetting", "SAMPLES": 10**6}, "class")
    found = torch.from_numpy(run(recipe, made_frame()).final_weights)
    return found - selective_forgetting(made_frame(), 1e-6, removed=5)


SETTINGS = {
    "langevin/many_classes": langevin_of_many_classes,
    "langevin/two_classes": langevin_of_two_classes,
    "fisher/class_removal": fisher_of_a_class,
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_method_follows_its_authors_formulas(setting, monkeypatch):
    with as_stored():
        off = float(SETTINGS[setting](monkeypatch).abs().max())
    assert off < 1e-12
    assert RECORDED[setting]["largest"] < 1e-12


def test_every_setting_is_on_the_page():
    assert RECORDED.keys() == SETTINGS.keys()


def test_fisher_treats_a_class_that_is_kept_in_part_as_the_others():
    with as_stored():
        found, without = (
            run(
                Recipe("fisher", {"preset": "selective-forgetting", "SAMPLES": 20, "CLASS_VARIANCE": variance}),
                made_frame(),
            ).final_weights
            for variance in (1e-4, 0.0)
        )
    assert np.array_equal(found, without)
