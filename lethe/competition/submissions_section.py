"""[submissions] of the competition file."""

from typing import Literal

from pydantic import Field, field_validator

from lethe.competition.section import Section
from lethe.submission.libraries import OLDER_SETS


class Submissions(Section):
    """What kinds of code are taken.

    In function mode every run is its own process, also of a notebook that saves models: it ends with its first. In
    notebook mode a notebook may ask to run once, and all its models count; runs are then not independent, and the
    leaderboard says so.
    """

    modes: tuple[Literal["function", "notebook"], ...] = Field(default=("function",), min_length=1)
    cuda: Literal["refuse", "map-to-cpu"] = Field(
        default="refuse", description="code that requires a GPU where there is none: refused, or run on the CPU"
    )
    input_folder: str = Field(
        default="neurips-2023-machine-unlearning",
        pattern=r"^[a-z0-9][a-z0-9._-]{0,99}$",
        description="the folder below /kaggle/input that notebooks read",
    )
    libraries: str = Field(
        default="",
        description="a set of older libraries that code runs with; empty: the workers' own (participants/libraries.md)",
        json_schema_extra={"enum": ["", *OLDER_SETS]},
    )

    @field_validator("libraries")
    @classmethod
    def _is_a_set(cls, value: str) -> str:
        if value and value not in OLDER_SETS:
            raise ValueError(f"must be empty or one of {', '.join(map(repr, OLDER_SETS))}")
        return value
