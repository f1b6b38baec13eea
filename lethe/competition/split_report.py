"""The report of a split: what its sets hold and what they share, written by preparation and read by the server."""

from pydantic import BaseModel, Field


class SharedBySets(BaseModel):
    """What two sets of a split have in common."""

    sets: tuple[str, str] = Field(examples=[("retain", "forget")])
    shared_images: int
    shared_persons: int
    exact_duplicates: int
    near_duplicates: int = Field(description="grey 8x8 thumbnails that correlate at 0.995 or more")
    examples: list[tuple[int, int, float]] = Field(description="the most similar: two image ids, their correlation")

    @property
    def overlaps(self) -> int:
        """How many images, persons and near-duplicates the sets share, together."""
        return self.shared_images + self.shared_persons + self.exact_duplicates + self.near_duplicates


class SplitReport(BaseModel):
    """What an organiser should look at before opening: sizes, counts of classes, overlaps. Keys are names of sets."""

    competition: str = Field(examples=["digits"])
    visibility: str = Field(examples=["public"])
    images: dict[str, int] = Field(examples=[{"retain": 700, "forget": 100, "validation": 180, "test": 719}])
    persons: dict[str, int]
    classes: dict[str, dict[str, int]] = Field(description="set -> class -> images")
    class_names: list[str] = Field(default=[], description="in the order of their labels; empty in older reports")
    confused_labels: int = Field(description="labels that were swapped on purpose")
    pairs: list[SharedBySets]
