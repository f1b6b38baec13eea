"""What every dataset adapter returns."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from lethe.data.errors import InvalidDataset
from lethe.errors import list_violations

Scale = float | list[float]
MAX_CLASSES = 100_000  # a network has an output for each


class Options(BaseModel):
    """Base of an adapter's options: `dataset.options` of the competition file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> Self:
        """Return the checked options. Raises InvalidDataset naming each wrong one."""
        try:
            return cls.model_validate(dict(options))
        except ValidationError as error:
            violations = list_violations(error)
            lines = "; ".join(f"dataset.options.{v.field}: {v.message}" for v in violations)
            raise InvalidDataset(lines, violations=violations) from error


@dataclass(frozen=True)
class ImageDataset:
    """Labelled images of persons.

    images: uint8 [n, C, H, W], in memory or memory-mapped; of a table its features, float32 [n, features, 1, 1].
    labels, persons: int64 [n]. Where a dataset knows no persons, every image is its own. is_test: images that the
    dataset's makers set aside, or None.
    notes: what its owner should know of how the files were read.
    A network sees images * input_scale + input_shift (one number, or one per channel).
    """

    example: ClassVar[str] = "image"

    images: NDArray[np.uint8] | NDArray[np.float32]
    labels: NDArray[np.int64]
    persons: NDArray[np.int64]
    n_classes: int
    input_scale: Scale = 1.0
    input_shift: Scale = 0.0
    class_names: tuple[str, ...] = ()
    is_test: NDArray[np.bool_] | None = None
    columns: dict[str, NDArray[Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def input_shape(self) -> tuple[int, int, int]:
        _, channels, height, width = self.images.shape
        return channels, height, width

    @property
    def is_table(self) -> bool:
        """Return whether the "images" are rows of features, which no picture's operation fits."""
        return self.images.dtype == np.float32 and self.images.shape[2:] == (1, 1)

    def checked(self) -> Self:
        """Return itself. Raises InvalidDataset where arrays do not fit one another."""
        if not (self.is_table or self.images.dtype == np.uint8) or self.images.ndim != 4:
            raise InvalidDataset(
                "images must be uint8 [n, C, H, W], or float32 [n, features, 1, 1], were "
                f"{self.images.dtype} {list(self.images.shape)}"
            )
        named = {"labels": self.labels, "persons": self.persons, **self.columns}
        for name, values in named.items():
            if len(values) != len(self.images):
                raise InvalidDataset(f"{name} has {len(values)} entries for {len(self.images)} images")
        if self.is_test is not None and len(self.is_test) != len(self.images):
            raise InvalidDataset(f"is_test has {len(self.is_test)} entries for {len(self.images)} images")
        if len(self.images) == 0:
            raise InvalidDataset("the dataset has no images")
        if self.n_classes > MAX_CLASSES:
            raise InvalidDataset(f"labels name {self.n_classes} classes; at most {MAX_CLASSES} are allowed")
        low, high = int(self.labels.min()), int(self.labels.max())
        if low < 0 or high >= self.n_classes:
            raise InvalidDataset(f"labels must lie in 0..{self.n_classes - 1}, were {low}..{high}")
        return self


Adapter = Callable[[Mapping[str, Any]], ImageDataset]  # from the options of a competition file


def own_person_each(n_images: int) -> NDArray[np.int64]:
    """Return person ids where no two images share a person."""
    return np.arange(n_images, dtype=np.int64)
