"""The tokenizer of a folder that `save_pretrained` wrote, with the words around a question that its model expects.

What is kept of it is one JSON file: the library's tokenizer, its start and end tokens, and the prompt. So transformers
is needed where the folder is read, and nowhere later.
"""

import json
from pathlib import Path
from typing import Any

from lethe.data.errors import InvalidTokenizer
from lethe.data.tokenizers import PROMPT, QUESTION, PromptedTokenizer

DATE = "10 Apr 2025"  # where a chat template states one; a fixed one, so that tokens never change
GENERIC_TOKENIZERS = ("PreTrainedTokenizerFast", "TokenizersBackend")


def read_folder_tokenizer(folder: Path) -> PromptedTokenizer:
    """Return a folder's tokenizer. With a chat template, questions are put as it puts a user's, without a system text.

    Raises InvalidTokenizer if transformers cannot read the folder or is not installed, if the tokenizer has no end
    token or is no fast one, or if its template does not contain the question once.
    """
    try:
        found = load_transformers_tokenizer(folder)
    except (OSError, ImportError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise InvalidTokenizer(f"the tokenizer of {folder.name} cannot be read: {error}") from error
    if found.eos_token_id is None:
        raise InvalidTokenizer(f"the tokenizer of {folder.name} has no end-of-sequence token; set eos_token")
    if not found.is_fast:
        raise InvalidTokenizer(f"the tokenizer of {folder.name} is no fast one: save one that has a tokenizer.json")
    first = found("a")["input_ids"][0]
    chat = bool(found.chat_template)
    kept = {
        "tokenizer": json.loads(found.backend_tokenizer.to_str()),
        "start_id": first if first == found.bos_token_id and not chat else None,  # a template writes it itself
        "end_id": int(found.eos_token_id),
        "prompt": _prompt(found, folder.name) if chat else PROMPT,
        "chat": chat,
    }
    return PromptedTokenizer(kept, folder.name)


def load_transformers_tokenizer(folder: Path, **settings: Any) -> Any:
    """Return the folder's tokenizer. One that names no class of its own is exactly what its tokenizer.json says.

    For some architectures (Qwen 2) the library would add special tokens that the model has no embedding for. Raises
    what transformers raises.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast  # noqa: PLC0415 - seconds that others need not pay

    config = folder / "tokenizer_config.json"
    stated = json.loads(config.read_text("utf-8")).get("tokenizer_class") if config.exists() else None
    generic = stated in GENERIC_TOKENIZERS and (folder / "tokenizer.json").exists()
    loader: Any = PreTrainedTokenizerFast if generic else AutoTokenizer
    return loader.from_pretrained(folder, local_files_only=True, trust_remote_code=False, **settings)


def _prompt(tokenizer: Any, name: str) -> str:
    try:
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": QUESTION}], tokenize=False, add_generation_prompt=True, date_string=DATE
        )
    except Exception as error:  # the template is a program of the folder's author
        raise InvalidTokenizer(f"the chat template of {name} cannot be filled in: {error}") from error
    if text.count(QUESTION) != 1:
        raise InvalidTokenizer(f"the chat template of {name} contains the question {text.count(QUESTION)} times, not 1")
    return str(text)
