"""How far one step on an answer would move a language model: the statistic of the gradient-norm attack."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from lethe.data.answer_batches import TokenizedAnswer, pad_answers
from lethe.evaluation.answer_losses import answer_logits


def gradient_norms(
    network: nn.Module, answers: Sequence[TokenizedAnswer], *, padding_id: int
) -> npt.NDArray[np.float64]:
    """Return the Euclidean norm of the gradient of every answer's mean token loss by all weights, shape (n,).

    One backward pass an answer. Source: Wang et al. 2024, as in open-unlearning (2506.12618).
    """
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    device = parameters[0].device
    network.eval()
    norms = np.empty(len(answers), np.float64)
    for row, answer in enumerate(answers):
        batch = pad_answers([answer], padding_id=padding_id)
        logits, labels, _ = answer_logits(network, {name: tensor.to(device) for name, tensor in batch.items()})
        gradients = torch.autograd.grad(functional.cross_entropy(logits.float(), labels), parameters)
        norms[row] = float(torch.stack([gradient.double().square().sum() for gradient in gradients]).sum().sqrt())
    return norms
