"""Reads a competition file, which an organiser writes, in a process that can be killed."""

from lethe.competition.file import CompetitionFile
from lethe.competition.network_size import describe_excess
from lethe.competition.new_file import require_new
from lethe.errors import InvalidCompetitionFile, InvalidInput, Violation
from server.db import now
from server.parsing.client import Unreadable, run_if_free


def read_file(text: str, *, source: str = "competition file") -> CompetitionFile:
    """Return the checked competition in TOML `text`. Raises InvalidCompetitionFile, HostFault if too many are read."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{source} holds a character that is not text") from error
    try:
        file = CompetitionFile.model_validate(run_if_free("read_competition", data, source=source))
    except Unreadable as error:
        raise InvalidCompetitionFile(error.detail, violations=(Violation("file", error.detail),)) from error
    require_new(file, at=now(), source=source)
    return file


def check_size(file: CompetitionFile, *, source: str = "competition file") -> None:
    """Raise InvalidCompetitionFile for a network that no worker would build."""
    if excess := describe_excess(file.network.name, file.network.options):
        wrong = Violation("network.options", excess)
        raise InvalidCompetitionFile(f"{source}: the network {file.network.name} {excess}", violations=(wrong,))
