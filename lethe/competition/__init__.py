"""The competition file: everything that an organiser decides, as TOML, checked before anything is made."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lethe.competition.file import CompetitionFile, parse_competition, read_competition_file

__all__ = ["CompetitionFile", "parse_competition", "read_competition_file"]


def __getattr__(name: str) -> Any:
    """Import the file's definition when it is asked for: commands that read no file need not wait for it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lethe.competition import file  # noqa: PLC0415

    return getattr(file, name)
