"""Saliency maps: how strongly each input moves the output of the class that a model predicts."""

from collections.abc import Mapping, Sequence
from copy import deepcopy

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

BATCH = 256
Float32 = npt.NDArray[np.float32]
State = Mapping[str, Tensor]


def saliency_arrays(network: nn.Module, models: Sequence[State], sets: Mapping[str, Tensor]) -> dict[str, Float32]:
    """Return `forget_saliency` [N, S, P] and so on: the arrays of one side for the metrics of saliency attacks.

    network: of the architecture; a copy is used. models: N state dicts. sets: inputs of the network, shape
    (n_examples, ...) on its device, by name: forget, retain, test.
    """
    maps = {name: [saliency_maps(network, state, images) for state in models] for name, images in sets.items()}
    return {f"{name}_saliency": np.stack(each) for name, each in maps.items()}


def saliency_maps(network: nn.Module, weights: State, images: Tensor, *, batch: int = BATCH) -> Float32:
    """Return |d z_c / d x| of every example, c the predicted class, shape (n_examples, n_inputs).

    The model is in evaluation mode, so that an example's map does not depend on the others.
    Source: Simonyan et al. 2014 (arXiv:1312.6034), section 3; target and absolute value as in the program of Huang et
    al. 2024 (arXiv:2407.17663).
    """
    model = deepcopy(network)
    model.load_state_dict(weights)
    model.eval()
    return np.concatenate([_maps(model, part) for part in torch.split(images, batch)])


def _maps(model: nn.Module, images: Tensor) -> Float32:
    inputs = images.detach().clone().requires_grad_()
    outputs = model(inputs)
    (slopes,) = torch.autograd.grad(outputs.max(dim=1).values.sum(), inputs)
    return np.asarray(slopes.abs().flatten(1).cpu().numpy(), np.float32)
