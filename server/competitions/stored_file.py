"""A competition's file as it is stored: checked once for each content, then shared by everyone who asks."""

import marshal
from functools import lru_cache

from lethe.competition.file import CompetitionFile
from server.models.competition import Competition, Split

MOST_FILES = 256


def stored_file(competition: Competition) -> CompetitionFile:
    """Return the organiser's decisions as the checked model, which nobody can change."""
    # A quarter of the time of JSON. Version 2 gives the same bytes for the same content.
    return _checked(marshal.dumps(competition.config, 2))


def split_file(competition: Competition, split: Split) -> CompetitionFile:
    """Return the file that a split is made by: the competition's, with the dataset of this version of the split."""
    if split.dataset is None:
        return stored_file(competition)
    return _checked(marshal.dumps({**competition.config, "dataset": split.dataset}, 2))


@lru_cache(maxsize=MOST_FILES)
def _checked(config: bytes) -> CompetitionFile:
    return CompetitionFile.model_validate(marshal.loads(config))  # noqa: S302 (our own bytes, of this process)
