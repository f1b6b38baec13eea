"""What can go wrong with a split, in the organiser's words."""

from lethe.errors import AppError, HostFault, InvalidCompetitionFile


class InvalidDataset(InvalidCompetitionFile):
    slug, title = "invalid-dataset", "The dataset cannot be read"


class InvalidSplit(InvalidCompetitionFile):
    slug, title = "invalid-split", "The data cannot be cut as the competition file asks"


class UntrainedModel(AppError):
    slug, title = "untrained-model", "A model did not learn"


class SplitNotPrepared(HostFault):
    slug, title = "split-not-prepared", "The split is not prepared"


class DamagedSplit(HostFault):
    slug, title = "damaged-split", "A file of the prepared split is damaged"
