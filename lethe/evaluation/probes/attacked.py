"""How well a model knows the forget set after attacks on it: training, rounding, pruning, the way to the original."""

from collections.abc import Iterator, Mapping
from copy import deepcopy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lethe.data.torch_seeds import global_generators
from lethe.evaluation.probes.examples import Examples
from lethe.evaluation.probes.relearn import batches
from lethe.metrics.weights.probes import ATTACKS
from lethe.networks.rounding import prune, quantize

RELEARNED_SHARE = 0.5
PATH_STEPS = 10
State = Mapping[str, Tensor]
Float64 = NDArray[np.float64]


def attacked_knowledge(
    network: nn.Module,
    weights: State,
    *,
    original: State,
    forget: Examples,
    retain: Examples,
    learning_rate: float,
    seed: int = 0,
) -> Float64:
    """Return how well a model knows the forget set after each of `ATTACKS`, in [0, 1], shape (n_attacks,).

    network: a copy of it is attacked. weights, original: state_dicts. learning_rate: the training's; what attacks train
    with follows from it (`Examples.optimizer`). seed: of the part that is relearned, of the order and of dropout.
    After relearning the part of the forget set that was not trained on is asked: a half, or the one example there is.
    """
    found = {"none": forget.knowledge(_loaded(network, weights), _all(forget))}
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(forget), generator=generator)
    n_trained = int(RELEARNED_SHARE * len(forget))
    trainings = {
        "retain": (retain, _all(retain), _all(forget)),
        "relearn": (forget, order[:n_trained], order[n_trained:]),
    }
    for name, (trained, rows, asked) in trainings.items():
        epochs = [int(attack.rpartition("-")[2]) for attack in ATTACKS if attack.startswith(f"{name}-")]
        states = trained_on(_loaded(network, weights), trained, rows, learning_rate, n_epochs=max(epochs), seed=seed)
        for epoch, model in enumerate(states, start=1):
            if epoch in epochs:
                found[f"{name}-{epoch}"] = forget.knowledge(model, asked)
    for attack in ATTACKS:
        if attack not in found:
            model = _loaded(network, weights)
            _change(model, attack, weights, original)
            found[attack] = forget.knowledge(model, _all(forget))
    return np.array([found[attack] for attack in ATTACKS])


def loss_barrier(network: nn.Module, weights: State, *, original: State, forget: Examples) -> float:
    """Return the greatest rise of the forget loss on the straight way to the original, nats; 0 at the least.

    max over t = 0, .1, ..., 1 of L((1 - t) u + t o) - [(1 - t) L(u) + t L(o)].
    Source: dormant test (arXiv:2505.22310), whose code shows the way in steps of .05 and takes no maximum.
    """
    losses = np.array(
        [
            forget.mean_loss(_loaded(network, _between(weights, original, step / PATH_STEPS)))
            for step in range(PATH_STEPS + 1)
        ]
    )
    return float((losses - np.linspace(losses[0], losses[-1], PATH_STEPS + 1)).max())


def _change(model: nn.Module, attack: str, weights: State, original: State) -> None:
    name, _, number = attack.rpartition("-")
    if name == "quantise":
        quantize(model, bits=int(number))
    elif name == "prune":
        prune(model, share=int(number) / 100)
    else:
        model.load_state_dict(_between(weights, original, int(number) / 100))


def _between(weights: State, original: State, t: float) -> dict[str, Tensor]:
    """Return (1 - t) weights + t original; whole numbers stay."""
    return {
        name: torch.lerp(value, original[name].to(value), t) if value.is_floating_point() else value
        for name, value in weights.items()
    }


def trained_on(
    model: nn.Module, examples: Examples, rows: Tensor, learning_rate: float, *, n_epochs: int, seed: int
) -> Iterator[nn.Module]:
    """Yield the model after each epoch on these rows."""
    optimizer = examples.optimizer(model, learning_rate)
    order = torch.Generator().manual_seed(seed)
    for epoch in range(n_epochs):
        with global_generators(seed + epoch):
            model.train()
            shuffled = rows[torch.randperm(len(rows), generator=order)]
            for part in batches(shuffled, examples.batch_size) if len(rows) else ():
                optimizer.zero_grad(set_to_none=True)
                examples.loss(model, part).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        yield model


def _loaded(network: nn.Module, weights: State) -> nn.Module:
    model = deepcopy(network)
    model.load_state_dict(weights)
    return model


def _all(examples: Examples) -> Tensor:
    return torch.arange(len(examples))
