"""Distances between the weights of kept models and of retrained ones."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from lethe.metrics.core.invalid_input import InvalidMetricInput
from lethe.metrics.weights.weight_distance import weight_distance

State = Mapping[str, Tensor]


def parameter_arrays(state: State, network: nn.Module) -> dict[str, npt.NDArray[Any]]:
    """Return the trained parameters of a state dict as arrays by name, without buffers such as running means.

    network: of the same architecture; only its names are used. A parameter shared by two layers occurs once.
    Raises InvalidMetricInput for a parameter that the state dict lacks.
    """
    names = [name for name, _ in network.named_parameters()]
    lacking = [name for name in names if name not in state]
    if lacking:
        raise InvalidMetricInput(f"the state dict lacks the parameter {lacking[0]}")
    return {name: state[name].detach().cpu().float().numpy() for name in names}


def weight_distances(
    network: nn.Module, models: Sequence[State], retrained: Sequence[State]
) -> dict[str, npt.NDArray[np.float64]]:
    """Return `weight_distance` [k] of models from the retrained ones with the same number, and their `weight_norm` [k].

    models: as many state dicts as retrained ones, or one that stands for all.
    Raises InvalidMetricInput for other numbers of models, and for weights that are not finite.
    """
    if len(models) not in (1, len(retrained)):
        raise InvalidMetricInput(f"{len(models)} models cannot be paired with {len(retrained)} retrained ones")
    own = [parameter_arrays(state, network) for state in models] * (len(retrained) if len(models) == 1 else 1)
    found = [
        weight_distance(mine, parameter_arrays(state, network)) for mine, state in zip(own, retrained, strict=True)
    ]
    return {
        "weight_distance": np.array([result.value for result in found]),
        "weight_norm": np.array([result.table["norm"] for result in found]),
    }
