"""Token ids as text, cleaned up as transformers 4 did: later versions leave byte-level texts as they are."""

from collections.abc import Sequence

from lethe.huggingface.model_folder import LanguageModel

# No blank before punctuation and contracted words.
CLEANED_UP = (
    *((f" {end}", end) for end in ".?!,"),
    (" ' ", "'"),
    *((f" {end}", end) for end in ("n't", "'m", "'s", "'ve", "'re")),
)


def decode(model: LanguageModel, rows: Sequence[list[int]], *, clean_up: bool) -> list[str]:
    """Return the texts without special tokens."""
    found = model.tokenizer.batch_decode(list(rows), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return [_cleaned(text) for text in found] if clean_up else list(found)


def decode_as_configured(model: LanguageModel, rows: Sequence[list[int]]) -> list[str]:
    """Return the texts, cleaned up if the tokenizer's configuration says so."""
    return decode(model, rows, clean_up=bool(getattr(model.tokenizer, "clean_up_tokenization_spaces", False)))


def _cleaned(text: str) -> str:
    for before, after in CLEANED_UP:
        text = text.replace(before, after)
    return text
