"""Distances between the weights of kept models, beside those that give them a scale."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from lethe.metrics.invalid_input import InvalidMetricInput
from lethe.metrics.weight_distance import weight_distance

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
    network: nn.Module,
    *,
    unlearned: Sequence[State],
    retrained: Sequence[State],
    original: Sequence[State] = (),
    oracle: Sequence[State] = (),
) -> dict[str, npt.NDArray[np.float64]]:
    """Return L2 distances of paired models by pair of sides, shape (k,) each.

    unlearned, retrained: k state dicts each. original: k, or one for all; oracle: k retrained from other seeds.
    "unlearned_retrained" says little without "original_retrained" and "retrained_oracle", which are there if given.
    Raises InvalidMetricInput for unequal numbers of models.
    """
    sides = {"unlearned": unlearned, "retrained": retrained, "original": original, "oracle": oracle}
    states = {side: [parameter_arrays(state, network) for state in given] for side, given in sides.items() if given}
    if len(states.get("original", ())) == 1:
        states["original"] *= len(retrained)
    sizes = {side: len(given) for side, given in states.items()}
    if len(set(sizes.values())) > 1 or not {"unlearned", "retrained"} <= set(sizes):
        raise InvalidMetricInput(f"each side needs as many models as the retrained one, not {sizes}")
    pairs = (("unlearned", "retrained"), ("original", "retrained"), ("retrained", "oracle"))
    return {
        f"{a}_{b}": np.array([weight_distance(x, y).value for x, y in zip(states[a], states[b], strict=True)])
        for a, b in pairs
        if a in states and b in states
    }
