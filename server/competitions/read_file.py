"""Reads a competition file, which an organiser writes, in a process that can be killed."""

from lethe.competition.file import WEAKEST_SEED_BITS, CompetitionFile
from lethe.errors import InvalidCompetitionFile, InvalidInput, Violation
from server.parsing.client import Unreadable, run_if_free


def read_file(text: str, *, source: str = "competition file") -> CompetitionFile:
    """Return the checked competition in TOML `text`. Raises InvalidCompetitionFile, HostFault if too many are read."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{source} holds a character that is no text") from error
    try:
        file = CompetitionFile.model_validate(run_if_free("read_competition", data, source=source))
    except Unreadable as error:
        raise InvalidCompetitionFile(error.detail, violations=(Violation("file", error.detail),)) from error
    _check_seed(file)
    return file


def _check_seed(file: CompetitionFile) -> None:
    """Not a rule of the file itself: competitions that were made earlier are still read."""
    if file.strangers and file.splits.seed.bit_length() < WEAKEST_SEED_BITS:
        weak = f"has fewer than {WEAKEST_SEED_BITS} bits, so it can be guessed: leave it out, or say strangers = false"
        raise InvalidCompetitionFile(f"splits.seed {weak}", violations=(Violation("splits.seed", weak),))
