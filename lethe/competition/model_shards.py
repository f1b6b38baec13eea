"""A shard of the many models that a split needs: which of them are trained together, and kept in which file."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ShardToMake:
    """Models first_model .. first_model + n_models - 1 of a kind, kept in file number `position`."""

    kind: str
    position: int
    first_model: int
    n_models: int
