"""Errors of data, of images and of texts."""

from lethe.errors import AppError, HostFault, InvalidCompetitionFile, InvalidInput


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


class InvalidText(InvalidInput):
    """Questions and answers cannot be used; the message names the file, the line and what is allowed."""

    slug, title = "invalid-text", "The text cannot be used"


class InvalidTokenizer(InvalidInput):
    """A tokenizer file cannot be read, or does not fit the network."""

    slug, title = "invalid-tokenizer", "The tokenizer cannot be used"


class InvalidLanguageModel(InvalidInput):
    """Weights of a language model cannot be used; the message names the tensor."""

    slug, title = "invalid-language-model", "The language model's weights cannot be used"
