"""The attack families on real data: `python -m benchmarks.scoring.families`.

Handwritten digits (scikit-learn) with Gaussian pixel noise of one standard deviation, so that memorising shows; a
64-64-10 perceptron; 700 images retained, 100 forgotten; 512 models of every kind, trained together as one batch.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import kendalltau
from sklearn.datasets import load_digits

from lethe.metrics.scoring.arrays import logit_scaled_confidences
from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.calibration import calibrate
from lethe.metrics.scoring.resampling import ScoredEntry, tied_groups
from lethe.metrics.scoring.score import ModelOutputs, Score, score

N_MODELS = 512
WIDTH = 64
N_RETAIN, N_FORGET = 700, 100
EPOCHS, BATCH, RATE = 20, 50, 0.1

Weights = list[torch.Tensor]


@dataclass(frozen=True)
class Split:
    """Images and classes of the three sets."""

    retain: tuple[torch.Tensor, torch.Tensor]
    forget: tuple[torch.Tensor, torch.Tensor]
    test: tuple[torch.Tensor, torch.Tensor]


def make_split() -> Split:
    """Return the noisy digits, divided by a fixed permutation."""
    digits = load_digits()
    rng = np.random.default_rng(0)
    images = digits.data / 16.0
    images = (images - images.mean(0)) / images.std()
    images = torch.tensor(images + rng.normal(size=images.shape), dtype=torch.float32)
    classes = torch.tensor(digits.target)
    order = torch.tensor(rng.permutation(len(images)))
    parts = order[:N_RETAIN], order[N_RETAIN : N_RETAIN + N_FORGET], order[N_RETAIN + N_FORGET :]
    return Split(*((images[part], classes[part]) for part in parts))


def fresh(generator: torch.Generator) -> Weights:
    """Return N initial perceptrons: weights and biases of two layers, the first dimension counting models."""
    shapes = [(64, WIDTH), (1, WIDTH), (WIDTH, 10), (1, 10)]
    return [
        torch.randn((N_MODELS, *shape), generator=generator) * (shape[0] > 1) * (2.0 / shape[0]) ** 0.5
        for shape in shapes
    ]


def compute_logits(weights: Weights, images: torch.Tensor) -> torch.Tensor:
    """Return logits, shape (n_models, n_images, 10); images shared by all models or one batch for each."""
    first, first_bias, second, second_bias = weights
    return torch.relu(images @ first + first_bias) @ second + second_bias


def train(
    weights: Weights, data: tuple[torch.Tensor, torch.Tensor], generator: torch.Generator, *, epochs: int
) -> Weights:
    """Return the models after plain stochastic gradient descent, each with its own order of the images."""
    images, classes = data
    weights = [one.clone().requires_grad_() for one in weights]
    for _ in range(epochs):
        order = torch.rand((N_MODELS, len(images)), generator=generator).argsort(dim=1)
        for start in range(0, len(images), BATCH):
            chosen = order[:, start : start + BATCH]
            logits = compute_logits(weights, images[chosen])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), classes[chosen].flatten(), reduction="sum")
            gradients = torch.autograd.grad(loss / BATCH, weights)
            with torch.no_grad():
                for k, gradient in enumerate(gradients):
                    weights[k] -= RATE * gradient
    return [one.detach() for one in weights]


def outputs(weights: Weights, split: Split) -> ModelOutputs:
    """Return confidences on the forget set and accuracies on the other two."""
    targets = split.forget[1].numpy()
    logits = compute_logits(weights, split.forget[0]).numpy()
    accuracies = [
        (compute_logits(weights, images).argmax(-1) == classes).double().mean(1).numpy()
        for images, classes in (split.retain, split.test)
    ]
    return ModelOutputs(np.stack([logit_scaled_confidences(model, targets) for model in logits]), *accuracies)


def entries(split: Split, generator: torch.Generator) -> dict[str, ModelOutputs]:
    """Return the outputs of simple submissions, all starting from one original model."""
    everything = tuple(torch.cat(pair) for pair in zip(split.retain, split.forget, strict=True))
    originals = train(fresh(generator), (everything[0], everything[1]), generator, epochs=EPOCHS)
    original = [one[:1].expand_as(one).clone() for one in originals]
    found = {"original, 512 times": outputs(original, split)}
    for noise in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5):
        noisy = [one + noise * one.std() * torch.randn(one.shape, generator=generator) for one in original]
        tuned = train(noisy, split.retain, generator, epochs=1)
        found[f"noise {noise:.1f}, one epoch"] = outputs(tuned, split)
    tuned = train(original, split.retain, generator, epochs=5)
    found["five epochs"] = outputs(tuned, split)
    reset = fresh(generator)
    tuned = train([*original[:2], *reset[2:]], split.retain, generator, epochs=5)
    found["new last layer, five epochs"] = outputs(tuned, split)
    tuned = train([*reset[:2], *original[2:]], split.retain, generator, epochs=5)
    found["new first layer, five epochs"] = outputs(tuned, split)
    return found


def table(
    family: AttackFamily, entered: dict[str, ModelOutputs], retrained: ModelOutputs, oracle: Score
) -> list[float]:
    """Print one family's scores of all entries; return them in the order of the entries."""
    scores = {name: score(one, retrained, attacks=family, n_resamples=100) for name, one in entered.items()}
    standings = [ScoredEntry(one.headline, one.replicates) for one in scores.values() if one.replicates is not None]
    groups = tied_groups(standings)
    print(f"{family}: oracle F {oracle.forgetting_quality:.4f}, median epsilon {np.median(oracle.epsilon):.2f}")
    for (name, one), group in zip(scores.items(), groups, strict=True):
        found = calibrate(one, oracle)
        low, high = one.interval or (float("nan"),) * 2
        print(
            f"  {name:30s} F {one.forgetting_quality:.4f}  final {one.headline:.4f} [{low:.4f}, {high:.4f}]  "
            f"of oracle {found.fraction:.2f}  median epsilon {np.median(one.epsilon):6.2f}  group {group + 1}"
        )
    return [one.headline for one in scores.values()]


def main() -> None:
    """Train, score by every family, and compare the rankings."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    split = make_split()
    retrained, second = (
        outputs(train(fresh(generator), split.retain, generator, epochs=EPOCHS), split) for _ in range(2)
    )
    entered = entries(split, generator)
    for name, one in ({"retrained": retrained} | entered).items():
        if one.retain_accuracy is not None and one.test_accuracy is not None:
            print(f"{name:30s} retain {one.retain_accuracy.mean():.3f} test {one.test_accuracy.mean():.3f}")
    headlines = {}
    for family in AttackFamily:
        oracle = score(second, retrained, attacks=family, n_resamples=100)
        headlines[family] = table(family, entered, retrained, oracle)
    for family in AttackFamily:
        if family.is_published:
            tau = kendalltau(headlines[AttackFamily.CROSSFIT], headlines[family]).statistic
            print(f"Kendall's tau of the ranking, crossfit against {family}: {tau:.2f}")


if __name__ == "__main__":
    main()
