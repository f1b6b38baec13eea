"""The extra `class_weights`: counts for code that reads them by class, weights for code that hands them to a loss."""

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Self

import torch
from torch import Tensor


class ClassWeights(Tensor):
    """A tensor of balanced weights [n_classes], which also answers as the mapping from class names to counts.

    The competition's file holds counts under texts, and entries invert them; a loss wants weights. The weight of a
    class is n / (n_classes * count), and 0 for a class without examples.
    """

    counts: dict[str, int]
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # results are plain tensors

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> Self:
        """Return the weights for these counts, in the order of the classes' numbers."""
        named = dict(sorted(counts.items(), key=lambda item: int(item[0])))
        n = sum(named.values())
        weights = torch.tensor([n / (len(named) * count) if count else 0.0 for count in named.values()])
        made = weights.as_subclass(cls)
        made.counts = named
        return made

    def __getitem__(self, key: Any) -> Any:
        return self.counts[key] if isinstance(key, str) else super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        return key in self.counts if isinstance(key, str) else bool(super().__contains__(key))

    def keys(self) -> KeysView[str]:
        return self.counts.keys()

    def items(self) -> ItemsView[str, int]:
        return self.counts.items()

    def get(self, key: str, default: int | None = None) -> int | None:
        return self.counts.get(key, default)

    def values(self) -> ValuesView[int]:  # type: ignore[override]  # a dense tensor has no values() of its own
        return self.counts.values()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.as_subclass(Tensor))
