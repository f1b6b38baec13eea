"""Fine-tuning a language model on questions and answers.

The model is a function of the network's weights, the answers, the recipe and the seed. Batches hold answers of similar
length, which halves the padding; which ones, and in which order they come, is drawn for every epoch.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.data.answer_batches import TokenizedAnswer, pad_answers
from lethe.evaluation.answer_losses import answer_logits
from lethe.runtime.answer_loaders import IGNORED_LABEL, Batch

WINDOW = 8  # batches whose answers are sorted by length together

OnEpoch = Callable[[int], None]


@dataclass(frozen=True)
class FineTuning:
    """AdamW with a linear warm-up and a cosine to zero. TOFU: 5 epochs, batch 32, 1e-5, weight decay 0.01.

    warm_up: share of all steps. loss_on: the answers alone, or all tokens (a network that was not pretrained learns
    the language from the questions too). precision: bf16 keeps float32 weights.
    """

    epochs: int = 5
    batch_size: int = 32
    learning_rate: float = 1e-5
    weight_decay: float = 0.01
    warm_up: float = 0.2
    gradient_norm: float = 1.0
    loss_on: Literal["answers", "all"] = "answers"
    precision: Literal["float32", "bf16"] = "bf16"

    def learning_rate_at(self, step: int, n_steps: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        rising = max(1, round(self.warm_up * n_steps))
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, n_steps - rising)))


def fine_tune(
    network: nn.Module,
    answers: Sequence[TokenizedAnswer],
    recipe: FineTuning,
    *,
    seed: int,
    padding_id: int,
    on_epoch: OnEpoch | None = None,
) -> None:
    """Train the network in place, on the device where it is. on_epoch: called with the number of epochs done."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = make_optimizer(network, recipe)
    for epoch in range(recipe.epochs):
        run_epoch(network, answers, recipe, optimizer, generator, epoch=epoch, padding_id=padding_id)
        if on_epoch:
            on_epoch(epoch + 1)


def make_optimizer(network: nn.Module, recipe: FineTuning) -> torch.optim.Optimizer:
    """Return the optimiser of the network's parameters that are trained."""
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(
        trained, lr=recipe.learning_rate, weight_decay=recipe.weight_decay, betas=(0.9, 0.95), fused=True
    )


def run_epoch(
    network: nn.Module,
    answers: Sequence[TokenizedAnswer],
    recipe: FineTuning,
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
    *,
    epoch: int,
    padding_id: int,
) -> None:
    """Train the network over every answer once. epoch: counted from 0, for the learning rate."""
    device = next(network.parameters()).device
    steps_per_epoch = -(-len(answers) // recipe.batch_size)
    network.train()
    batches = epoch_batches(answers, recipe, generator, padding_id=padding_id)
    for step, batch in enumerate(batches, start=epoch * steps_per_epoch):
        optimizer.param_groups[0]["lr"] = recipe.learning_rate_at(step, recipe.epochs * steps_per_epoch)
        loss = batch_loss(network, {name: tensor.to(device) for name, tensor in batch.items()}, recipe)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], recipe.gradient_norm)
        optimizer.step()


def epoch_batches(
    answers: Sequence[TokenizedAnswer], recipe: FineTuning, generator: torch.Generator, *, padding_id: int
) -> Iterator[Batch]:
    """Yield one epoch's batches: every answer once, in an order drawn from the generator."""
    order = torch.randperm(len(answers), generator=generator).tolist()
    size = recipe.batch_size
    batches = []
    for first in range(0, len(order), WINDOW * size):
        window = sorted(order[first : first + WINDOW * size], key=lambda i: len(answers[i].tokens))
        batches += [window[start : start + size] for start in range(0, len(window), size)]
    for i in torch.randperm(len(batches), generator=generator).tolist():
        batch = pad_answers([answers[row] for row in batches[i]], padding_id=padding_id)
        yield batch if recipe.loss_on == "answers" else {**batch, "labels": _all_labels(batch)}


def batch_loss(network: nn.Module, batch: Batch, recipe: FineTuning) -> Tensor:
    """Return the mean loss over the batch's labelled tokens."""
    device = batch["labels"].device.type
    with torch.autocast(device, dtype=torch.bfloat16, enabled=recipe.precision == "bf16"):
        logits, labels, _ = answer_logits(network, batch)
    return functional.cross_entropy(logits.float(), labels)


def _all_labels(batch: Batch) -> Tensor:
    return batch["input_ids"].masked_fill(batch["attention_mask"] == 0, IGNORED_LABEL)
