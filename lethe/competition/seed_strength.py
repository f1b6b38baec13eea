"""Whether a participant could guess the seed of a competition's splits."""

from lethe.competition.file import CompetitionFile
from lethe.competition.splits_section import WEAKEST_SEED_BITS
from lethe.errors import InvalidCompetitionFile, Violation


def check_seed(file: CompetitionFile) -> None:
    """Raise InvalidCompetitionFile for a seed that can be guessed, unless the file allows it.

    Not a rule of the file itself: competitions that were made earlier are still read.
    """
    if not file.weak_seed and file.splits.seed.bit_length() < WEAKEST_SEED_BITS:
        weak = f"has fewer than {WEAKEST_SEED_BITS} bits, so it can be guessed: leave it out, or say weak_seed = true"
        raise InvalidCompetitionFile(f"splits.seed {weak}", violations=(Violation("splits.seed", weak),))
