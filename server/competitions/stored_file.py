"""A competition's file as stored, perhaps by another version: checked once for each content, then shared."""

import marshal
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import structlog
from pydantic import ValidationError

from lethe.competition.estimates import describe_excess
from lethe.competition.file import CompetitionFile
from lethe.competition.new_file import require_new
from lethe.competition.section import SCHEMA_VERSION, as_stored, read_stored, schema_version
from lethe.errors import HostFault, InvalidCompetitionFile, InvalidInput, Violation
from server.db import now
from server.models.competition import Competition, Split
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


log = structlog.get_logger()
MAX_FILES = 256
# Why this process cannot read a competition's file, by slug, as it found out: to read each file before a claim would
# cost more than all else that a claim does.
unreadable: dict[str, str] = {}


class UnreadableCompetition(HostFault):
    """A competition's stored file is of a version that this program cannot read."""

    title = "Made by another version of Lethe"

    def __init__(self, competition: Competition, where: str) -> None:
        super().__init__(
            f"{competition.slug} was stored by another version of Lethe (schema {schema_version(competition.config)}, "
            f"this program knows {SCHEMA_VERSION}), which {where} shows: update this program"
        )
        unreadable[competition.slug] = self.detail


def stored_file(competition: Competition) -> CompetitionFile:
    """Return the organiser's decisions as a validated, frozen model. Raises UnreadableCompetition."""
    return _read(competition, competition.config)


def readable(competitions: Iterable[Competition]) -> list[Competition]:
    """Return those whose files this program can read: one of another version hides no other."""
    known = []
    for competition in competitions:
        try:
            stored_file(competition)
        except UnreadableCompetition as error:
            log.warning("left out of a list", competition=competition.slug, reason=error.detail)
        else:
            known.append(competition)
    return known


def own_values(competition: Competition) -> dict[str, Any]:
    """Return the file's values without what only another version knows, to be checked strictly with others."""
    return stored_file(competition).model_dump(mode="json")


def store_file(competition: Competition, file: CompetitionFile) -> None:
    """Store a changed file; what another version stored beside it stays."""
    competition.config = as_stored(file, before=competition.config)


def split_file(competition: Competition, split: Split) -> CompetitionFile:
    """Return the file that a split is made by: the competition's, with the dataset of this version of the split."""
    if split.dataset is None:
        return stored_file(competition)
    return _read(competition, {**competition.config, "dataset": split.dataset})


def _read(competition: Competition, config: dict[str, Any]) -> CompetitionFile:
    try:
        # A quarter of the time of JSON. Version 2 gives the same bytes for the same content.
        return _checked(marshal.dumps(config, 2))
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"])) or "its file"
        raise UnreadableCompetition(competition, where) from error


@lru_cache(maxsize=MAX_FILES)
def _checked(config: bytes) -> CompetitionFile:
    return read_stored(CompetitionFile, marshal.loads(config))  # noqa: S302 (our own bytes, of this process)
