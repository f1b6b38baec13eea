"""Probes of one model: how well it knows images or answers, how fast it relearns them, what attacks bring back."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from lethe.data.question_answers import TokenizedAnswer, pad_answers
from lethe.device import global_generators, prune, quantize
from lethe.evaluation.text import answer_logits, answer_losses
from lethe.metrics.forgetting.probes import ATTACKS

EVALUATED_AT_ONCE = 256
RELEARNING_SHARE = 0.1  # of the training's learning rate, for images


class Examples(Protocol):
    """Some examples of one set. rows: positions, int64 on the host."""

    @property
    def batch_size(self) -> int: ...

    def __len__(self) -> int: ...

    def loss(self, model: nn.Module, rows: Tensor) -> Tensor:
        """Return the mean loss of a batch, with its gradient."""

    def knowledge(self, model: nn.Module, rows: Tensor) -> float:
        """Return how well the model knows the examples, in [0, 1]; it is set to evaluation mode."""

    def mean_loss(self, model: nn.Module) -> float:
        """Return the mean loss of all examples, nats; the model is set to evaluation mode."""

    def optimizer(self, model: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
        """Return what attacks train with. learning_rate: the training's."""


@dataclass(frozen=True)
class ImageExamples:
    """images: inputs of the network, on its device. Knowledge is accuracy. SGD at a tenth of the training's rate."""

    images: Tensor
    labels: Tensor
    batch_size: int = 64

    def __len__(self) -> int:
        return len(self.labels)

    def loss(self, model: nn.Module, rows: Tensor) -> Tensor:
        chosen = rows.to(self.labels.device)
        return functional.cross_entropy(model(self.images[chosen]), self.labels[chosen])

    @torch.inference_mode()
    def knowledge(self, model: nn.Module, rows: Tensor) -> float:
        model.eval()
        chosen = rows.to(self.labels.device)
        right = [
            model(self.images[part]).argmax(dim=1) == self.labels[part]
            for part in torch.split(chosen, EVALUATED_AT_ONCE)
        ]
        return float(torch.cat(right).double().mean())

    def mean_loss(self, model: nn.Module) -> float:
        return mean_loss(model, self.images, self.labels)

    def optimizer(self, model: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=RELEARNING_SHARE * learning_rate)


@dataclass(frozen=True)
class AnswerExamples:
    """Knowledge is the mean probability of the answers per token. AdamW at the training's rate, without decay."""

    answers: tuple[TokenizedAnswer, ...]
    padding_id: int
    device: torch.device
    batch_size: int = 8

    def __len__(self) -> int:
        return len(self.answers)

    def loss(self, model: nn.Module, rows: Tensor) -> Tensor:
        batch = pad_answers([self.answers[row] for row in rows.tolist()], padding_id=self.padding_id)
        logits, labels, _ = answer_logits(model, {name: tensor.to(self.device) for name, tensor in batch.items()})
        return functional.cross_entropy(logits.float(), labels)

    def knowledge(self, model: nn.Module, rows: Tensor) -> float:
        chosen = [self.answers[row] for row in rows.tolist()]
        return float(np.exp(-answer_losses(model, chosen, padding_id=self.padding_id)).mean())

    def mean_loss(self, model: nn.Module) -> float:
        return float(answer_losses(model, self.answers, padding_id=self.padding_id).mean())

    def optimizer(self, model: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)


SLACK = 0.05
EPOCHS = 100
BATCH = 64


def mean_loss(network: nn.Module, images: Tensor, labels: Tensor, *, batch: int = BATCH) -> float:
    """Return the mean cross-entropy of the network in evaluation mode, in nats.

    images: shape (n_examples, ...). labels: shape (n_examples,), class numbers.
    """
    network.eval()
    total = 0.0
    with torch.inference_mode():
        for x, y in zip(torch.split(images, batch), torch.split(labels, batch), strict=True):
            total += float(functional.cross_entropy(network(x), y, reduction="sum"))
    return total / labels.shape[0]


def relearn_epochs(
    network: nn.Module,
    weights: Mapping[str, Tensor],
    images: Tensor,
    labels: Tensor,
    *,
    original_loss: float,
    learning_rate: float,
    max_epochs: int = EPOCHS,
    batch: int = BATCH,
    slack: float = SLACK,
    seed: int = 0,
) -> int:
    """Return the epochs of plain SGD until the mean loss is at most (1 + slack) * original_loss, at most max_epochs.

    network: of the competition's architecture; a copy is trained. weights: its state_dict. images, labels: the forget
    set, on the network's device. original_loss: `mean_loss` of the original model on it. learning_rate: a tenth of
    the training's is usual. seed: of the order of the batches and of dropout; torch's own generators stay as they are.
    0 if the loss is there from the start.
    Source: Golatkar et al. 2020; Kurmanji et al. 2023, readout.
    """
    model = deepcopy(network)
    model.load_state_dict(weights)
    limit = (1.0 + slack) * original_loss
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    order = torch.Generator().manual_seed(seed)
    with global_generators(seed, images.device):
        for epoch in range(max_epochs):
            if mean_loss(model, images, labels, batch=batch) <= limit:
                return epoch
            rows = torch.randperm(len(labels), generator=order)
            _train_once(model, optimizer, images, labels, batches(rows, batch))
    return max_epochs


def batches(rows: Tensor, batch: int) -> tuple[Tensor, ...]:
    """Return the rows in batches; one that would be left alone goes with those before it, as batch norm needs."""
    parts = torch.split(rows, batch)
    return parts if len(parts) < 2 or len(parts[-1]) > 1 else (*parts[:-2], torch.cat(parts[-2:]))


def _train_once(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor, parts: tuple[Tensor, ...]
) -> None:
    model.train()
    for rows in parts:
        chosen = rows.to(labels.device)
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(model(images[chosen]), labels[chosen]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


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
