"""The competition file: everything that an organiser decides, as TOML, checked before anything is made."""

from lethe.competition.file import CompetitionFile, parse_competition, read_competition_file

__all__ = ["CompetitionFile", "parse_competition", "read_competition_file"]
