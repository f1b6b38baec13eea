"""The two splits of a competition."""

from enum import StrEnum


class Visibility(StrEnum):
    """Which split: its scores are public while the competition runs, or private until its board is revealed."""

    PUBLIC = "public"
    PRIVATE = "private"
