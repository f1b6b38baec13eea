"""The work of a run in examples: how many a network was asked for, and through how many gradients went back.

It is a count and no time, so it is the same on every machine and at every load.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch._C import _functorch as functorch  # the only place that knows what a vectorised map runs over
from torch.utils import _pytree as pytree

BACKWARD = 2.0  # passes forward that one backward costs (Kaplan et al. 2020, arXiv:2001.08361, section 2.1)


@dataclass
class Work:
    """forward, backward: examples, each weighted by the share of the network's parameters that it went through."""

    forward: float = 0.0
    backward: float = 0.0

    def epochs(self, n_examples: int) -> float:
        """Return how many epochs of training on `n_examples` examples cost as much."""
        return (self.forward + BACKWARD * self.backward) / ((1.0 + BACKWARD) * n_examples)


@contextmanager
def counted_work(network: nn.Module) -> Iterator[Work]:
    """Count what passes through this network and any other module until the block ends.

    A module with p parameters counts each example as p over those of `network`: a part called by itself counts as a
    part, a second network as much as a first. Calls within a counted call count nothing, modules without parameters
    (losses) nothing either. A gradient that ends in the last layers counts like one through all. A vectorised map
    (torch.func.vmap) counts all examples that it maps over.
    """
    work, whole, inside = Work(), _size(network), False
    plain_call = nn.Module.__call__

    def call(module: nn.Module, *given: Any, **named: Any) -> Any:
        nonlocal inside
        if inside:
            return plain_call(module, *given, **named)
        inside = True
        try:
            made = plain_call(module, *given, **named)
        finally:
            inside = False
        share = _size(module) / whole
        examples = share * _length((given, named))
        output = next((leaf for leaf in pytree.tree_leaves(made) if isinstance(leaf, Tensor)), None)
        if examples and output is not None:
            work.forward += examples
            if output.requires_grad:
                output.register_hook(lambda _: went_back(examples))  # type: ignore[no-untyped-call]
        return made

    def went_back(examples: float) -> None:
        work.backward += examples

    nn.Module.__call__ = call  # type: ignore[method-assign]
    try:
        yield work
    finally:
        nn.Module.__call__ = plain_call  # type: ignore[method-assign]


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _length(given: Any) -> int:
    """Return the number of examples of the first tensor, those that a vectorised map hides included."""
    first = next((leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, Tensor) and leaf.dim()), None)
    return 0 if first is None else len(first) * _n_mapped(first)


def _n_mapped(tensor: Tensor) -> int:
    """Return over how many values of a tensor vectorised maps are running; 1 outside of them."""
    n_mapped = 1
    while functorch.is_functorch_wrapped_tensor(tensor):
        axis = functorch.maybe_get_bdim(tensor) if functorch.is_batchedtensor(tensor) else None
        tensor = functorch.get_unwrapped(tensor)
        n_mapped *= 1 if axis is None else tensor.shape[axis]
    return n_mapped
