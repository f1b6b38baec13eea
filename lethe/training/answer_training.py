"""Training language models on the questions of one split.

Model i is a function of (job, its seed) alone: order of the answers, and initial weights where it starts from none.
"""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.competition.file import Training
from lethe.competition.task import CausalLm
from lethe.data.answer_batches import TokenizedAnswer
from lethe.data.torch_seeds import global_generators
from lethe.device.precision import repeatable_attention
from lethe.evaluation.answer_losses import answer_scores
from lethe.networks.builders import build
from lethe.training.causal_lm import FineTuning, make_optimizer, run_epoch
from lethe.training.trainer import EpochTraining, State, untrained

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
