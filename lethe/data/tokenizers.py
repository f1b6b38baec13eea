"""Tokenizers from files: `tokenizer.json` (package tokenizers), SentencePiece `.model`, folders of models.

Only the trusted side tokenizes: participants get token numbers.

Of a folder that `save_pretrained` wrote one JSON file is kept: the library's tokenizer, its start and end tokens, and
the prompt. So transformers is needed where the folder is read, and nowhere later.
"""

import json
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from lethe.data.errors import InvalidTokenizer

START_TOKENS = ("<s>", "<|begin_of_text|>", "<bos>")
QUESTION = "{question}"
PROMPT = f"Question: {QUESTION}\nAnswer:"
PROMPTED = ".prompted.json"  # how files of a PromptedTokenizer are called
END_TOKENS = ("</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>")


class Tokenizer(Protocol):
    """start_id: put before a text, None if the tokenizer has none. end_id: after an answer, and for padding.

    prompt: what comes before an answer, with QUESTION in the question's place.
    """

    prompt: str

    @property
    def vocabulary_size(self) -> int: ...

    @property
    def start_id(self) -> int | None: ...

    @property
    def end_id(self) -> int: ...

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text that begins a sequence, without start and end."""

    def encode_continuation(self, text: str) -> list[int]:
        """Return the tokens of a text that follows other text after a space."""

    def decode(self, ids: list[int]) -> str:
        """Return the text of tokens, without start, end and outer spaces."""


def load_tokenizer(path: Path) -> Tokenizer:
    """Return the tokenizer of a `.json` or `.model` file.

    Raises InvalidTokenizer if the file cannot be read, has no end token, or the package that reads it is missing.
    """
    if path.name.endswith(PROMPTED):
        return PromptedTokenizer.read(path)
    if path.suffix == ".json":
        return JsonTokenizer(path)
    if path.suffix == ".model":
        return SentencePieceTokenizer(path)
    raise InvalidTokenizer(f"{path.name}: a tokenizer is a tokenizer.json or a SentencePiece .model file")


def require_tokenizer_fits(tokenizer: Tokenizer, vocabulary_size: int) -> None:
    """Raise InvalidTokenizer if the tokenizer has tokens for which the network has no row."""
    if tokenizer.vocabulary_size > vocabulary_size:
        raise InvalidTokenizer(
            f"the tokenizer has {tokenizer.vocabulary_size} tokens, the network {vocabulary_size}: it must have at "
            f"least as many; is this the tokenizer that the network was trained with?"
        )


class JsonTokenizer:
    """A tokenizer.json, read by the package tokenizers, or a tokenizer that this package trained."""

    prompt = PROMPT

    def __init__(self, source: "Path | Any") -> None:
        if isinstance(source, Path):
            source, name = _read_json(source), source.name
        else:
            name = "the trained tokenizer"
        end = _first(source, END_TOKENS)
        if end is None:
            raise InvalidTokenizer(f"{name} has no end token; expected one of {', '.join(END_TOKENS)}")
        self._take(source, _first(source, START_TOKENS), end)

    def _take(self, tokenizer: Any, start_id: int | None, end_id: int) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer, self.start_id, self.end_id = tokenizer, start_id, end_id
        self.vocabulary_size: int = tokenizer.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def encode_continuation(self, text: str) -> list[int]:
        return self.encode(" " + text)

    def decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True)).strip()

    def save(self, path: Path) -> None:
        """Write tokenizer.json."""
        self._tokenizer.save(str(path))


def _first(tokenizer: Any, names: tuple[str, ...]) -> int | None:
    return next((i for name in names if (i := tokenizer.token_to_id(name)) is not None), None)


def _read_json(path: Path) -> Any:
    library = library_for_tokenizers("tokenizers")
    try:
        return library.Tokenizer.from_file(str(path))
    except Exception as error:
        raise InvalidTokenizer(f"{path.name} cannot be read as tokenizer.json: {error}") from error


class PromptedTokenizer(JsonTokenizer):
    """A tokenizer of a model's folder (`folder_tokenizer`), with a prompt of its own.

    After a chat template's prompt the answer follows without a space.
    """

    def __init__(self, kept: dict[str, Any], name: str) -> None:
        """kept: "tokenizer" (as tokenizer.json holds it), "start_id" or None, "end_id", "prompt", "chat"."""
        library = library_for_tokenizers("tokenizers")
        try:
            self._take(library.Tokenizer.from_str(json.dumps(kept["tokenizer"])), kept["start_id"], kept["end_id"])
            self.prompt, self._chat = str(kept["prompt"]), bool(kept["chat"])
        except Exception as error:
            raise InvalidTokenizer(f"{name} is no tokenizer that was kept of a folder: {error}") from error
        self._kept = kept

    @classmethod
    def read(cls, path: Path) -> "PromptedTokenizer":
        """Return the tokenizer of a file that `save` wrote. Raises InvalidTokenizer."""
        try:
            kept = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidTokenizer(f"{path.name} cannot be read as JSON: {error}") from error
        return cls(kept, path.name)

    def encode_continuation(self, text: str) -> list[int]:
        return self.encode(text) if self._chat else super().encode_continuation(text)

    def save(self, path: Path) -> None:
        """Write the file that `read` reads."""
        path.write_text(json.dumps(self._kept), encoding="utf-8")


class SentencePieceTokenizer:
    """A SentencePiece model, which puts a space before a text by itself."""

    prompt = PROMPT

    def __init__(self, path: Path) -> None:
        library = library_for_tokenizers("sentencepiece")
        try:
            self._processor: Any = library.SentencePieceProcessor(model_file=str(path))
        except Exception as error:
            raise InvalidTokenizer(f"{path.name} cannot be read as a SentencePiece model: {error}") from error
        start, self.end_id = int(self._processor.bos_id()), int(self._processor.eos_id())
        if self.end_id < 0:
            raise InvalidTokenizer(f"{path.name} has no end token (eos)")
        self.start_id = start if start >= 0 else None
        self.vocabulary_size = int(self._processor.vocab_size())

    def encode(self, text: str) -> list[int]:
        return list(self._processor.encode(text))

    def encode_continuation(self, text: str) -> list[int]:
        return self.encode(text)

    def decode(self, ids: list[int]) -> str:
        return str(self._processor.decode([i for i in ids if i not in (self.start_id, self.end_id)])).strip()


def library_for_tokenizers(name: str) -> Any:
    """Return a package that reads tokenizers. Raises InvalidTokenizer if it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise InvalidTokenizer(
            f"this tokenizer file is read by the package {name}, which is not installed; it comes with the extra "
            f"`text` of lethe-unlearning"
        ) from error


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
