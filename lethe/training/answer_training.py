"""Training language models on the questions of one split.

Model i is a function of (job, its seed) alone: order of the answers, and initial weights where it starts from none.

Batches hold answers of similar length, which halves the padding; which ones, and in which order they come, is drawn for
every epoch.
"""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.competition.file import Training
from lethe.competition.task import CausalLm
from lethe.data.question_answers import TokenizedAnswer, pad_answers
from lethe.device import global_generators, repeatable_attention
from lethe.evaluation.text import answer_logits, answer_scores
from lethe.networks.builders import build
from lethe.runtime.answer_loaders import IGNORED_LABEL, Batch
from lethe.training.trainer import EpochTraining, State, untrained

WINDOW = 8  # batches whose answers are sorted by length together


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
        if recipe.loss_on != "answers":
            batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, IGNORED_LABEL)
        yield batch


def batch_loss(network: nn.Module, batch: Batch, recipe: FineTuning) -> Tensor:
    """Return the mean loss over the batch's labelled tokens."""
    device = batch["labels"].device.type
    with torch.autocast(device, dtype=torch.bfloat16, enabled=recipe.precision == "bf16"):
        logits, labels, _ = answer_logits(network, batch)
    return functional.cross_entropy(logits.float(), labels)


OUTPUT_LAYERS = ("lm_head", "embed_out")  # of the library transformers' models: often the embedding itself


@dataclass(frozen=True)
class AnswerJob:
    """What is trained on which answers. pretrained: weights that every model starts from, or None."""

    network: Mapping[str, Any]
    recipe: Training
    task: CausalLm
    answers: tuple[TokenizedAnswer, ...]
    pretrained: State | None
    device: torch.device

    @property
    def fine_tuning(self) -> FineTuning:
        recipe = self.recipe
        return FineTuning(
            epochs=recipe.epochs,
            batch_size=recipe.batch_size,
            learning_rate=recipe.learning_rate,
            weight_decay=recipe.weight_decay,
            warm_up=recipe.warmup_epochs / recipe.epochs,
            loss_on=self.task.loss_on,
            precision="bf16" if recipe.precision == "bf16" else "float32",
        )

    def start(self, seed: int) -> "AnswerTraining":
        return AnswerTraining(self, seed)

    def accuracy(self, state: State) -> float:
        """Return the share of the answers' tokens that are the model's first choice."""
        net = build(self.network)
        net.load_state_dict(state)
        scores = answer_scores(net.to(self.device), self.answers, padding_id=int(self.network["padding_id"]))
        return scores.token_accuracy


class AnswerTraining(EpochTraining):
    """One language model in training."""

    def __init__(self, job: AnswerJob, seed: int) -> None:
        net = untrained(job.network, seed)
        if job.pretrained is not None:
            net.load_state_dict(job.pretrained)
        if job.task.lora_rank is not None:
            with global_generators(seed):
                add_lora(net, rank=job.task.lora_rank)
        net = net.to(job.device)
        super().__init__(job, seed, net, make_optimizer(net, job.fine_tuning))

    def run_epoch(self) -> None:
        job: AnswerJob = self.job
        with repeatable_attention(job.device):
            run_epoch(
                self.net,
                job.answers,
                job.fine_tuning,
                self.optimizer,
                self.generator,
                epoch=self.epoch,
                padding_id=int(job.network["padding_id"]),
            )
        self.epoch += 1

    def state(self) -> State:
        """Return a copy of the model's state_dict, with additions of low rank merged."""
        net: nn.Module = self.net
        if self.job.task.lora_rank is not None:
            net = copy.deepcopy(net)
            merge_lora(net)
        return {name: value.detach().clone() for name, value in net.state_dict().items()}


class LoraLinear(nn.Module):
    """A frozen linear layer with a trained addition of low rank."""

    def __init__(self, layer: nn.Linear, *, rank: int, scale: float) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(layer.weight.new_empty(rank, layer.in_features))
        self.up = nn.Parameter(layer.weight.new_zeros(layer.out_features, rank))
        self.factor = scale / rank
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the layer's output with the addition."""
        result: Tensor = self.layer(inputs)
        return result + functional.linear(functional.linear(inputs, self.down), self.up) * self.factor

    def merged(self) -> nn.Linear:
        """Return the plain layer with the addition in its weights."""
        with torch.no_grad():
            self.layer.weight += self.factor * (self.up @ self.down)
        return self.layer.requires_grad_(True)


def add_lora(network: nn.Module, *, rank: int = 8, scale: float = 16.0) -> None:
    """Freeze the network and give every linear layer in its blocks an addition, in place; none to an output layer.

    rank: of the additions, at least 1. scale: the published alpha. Raises ValueError if the network has no linear
    layer.
    """
    if rank < 1:
        raise ValueError(f"the rank of LoRA is {rank}; it must be at least 1")
    network.requires_grad_(False)
    found = [
        (parent, name, child)
        for parent in network.modules()
        for name, child in parent.named_children()
        if isinstance(child, nn.Linear) and name not in OUTPUT_LAYERS
    ]
    if not found:
        raise ValueError("the network has no linear layer to which LoRA could be added")
    for parent, name, child in found:
        setattr(parent, name, LoraLinear(child, rank=rank, scale=scale))


def merge_lora(network: nn.Module) -> None:
    """Put all additions into the weights, in place: names and shapes are the original ones again."""
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, LoraLinear):
                setattr(parent, name, child.merged())
    network.requires_grad_(True)
