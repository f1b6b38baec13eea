"""What probes ask of a set of images or answers: how well a model knows them, and a loss to train on."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from lethe.data.answer_batches import TokenizedAnswer, pad_answers
from lethe.evaluation.answer_losses import answer_logits, answer_losses
from lethe.evaluation.probes.relearn import mean_loss

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
