"""What can be wrong with the text, the tokenizer or the language model of a competition."""

from lethe.errors import InvalidInput


class InvalidText(InvalidInput):
    """Questions and answers cannot be used; the message names the file, the line and what is allowed."""

    slug, title = "invalid-text", "The text cannot be used"


class InvalidTokenizer(InvalidInput):
    """A tokenizer file cannot be read, or does not fit the network."""

    slug, title = "invalid-tokenizer", "The tokenizer cannot be used"


class InvalidLanguageModel(InvalidInput):
    """Weights of a language model cannot be used; the message names the tensor."""

    slug, title = "invalid-language-model", "The language model's weights cannot be used"
