"""Tokenizers from files, and a vocabulary cut to what a task uses."""

import os
from pathlib import Path
from typing import Any

import pytest

from lethe.data import tokenizers
from lethe.data.errors import InvalidTokenizer
from lethe.data.split_questions import CutTokenizer, used_ids
from lethe.data.tokenizers import load_tokenizer, require_tokenizer_fits
from tests.support.tiny_language import WordTokenizer


def json_tokenizer(path: Path, *, end: str = "</s>") -> Path:
    library: Any = pytest.importorskip("tokenizers")
    made = library.Tokenizer(library.models.BPE())
    made.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=[end],
        initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(["Ada lives in Rome. " * 5], trainer)
    made.save(str(path))
    return path


def test_json_tokenizer_encodes_and_decodes(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(json_tokenizer(tmp_path / "tokenizer.json"))
    tokens = tokenizer.encode("Answer:") + tokenizer.encode_continuation("Ada lives in Łódź")
    assert tokenizer.decode([*tokens, tokenizer.end_id]) == "Answer: Ada lives in Łódź"
    assert tokenizer.start_id is None
    assert max(tokens) < tokenizer.vocabulary_size


def test_json_tokenizer_needs_an_end(tmp_path: Path) -> None:
    with pytest.raises(InvalidTokenizer, match="has no end token; expected one of </s>"):
        load_tokenizer(json_tokenizer(tmp_path / "tokenizer.json", end="<other>"))


@pytest.mark.parametrize(("name", "library"), [("t.json", "tokenizers"), ("t.model", "sentencepiece")])
def test_tokenizer_file_must_be_readable(tmp_path: Path, name: str, library: str) -> None:
    pytest.importorskip(library)
    (tmp_path / name).write_text("nothing")
    with pytest.raises(InvalidTokenizer, match=f"{name} cannot be read as"):
        load_tokenizer(tmp_path / name)


def test_tokenizer_file_must_be_of_a_known_kind(tmp_path: Path) -> None:
    with pytest.raises(InvalidTokenizer, match=r"vocab\.txt: a tokenizer is"):
        load_tokenizer(tmp_path / "vocab.txt")


def test_missing_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(tokenizers, "import_module", fail)
    with pytest.raises(InvalidTokenizer, match=r"package sentencepiece, which is not installed; .* extra `text`"):
        load_tokenizer(tmp_path / "a.model")


def test_llama_tokenizer_is_read() -> None:
    pytest.importorskip("sentencepiece")
    path = Path(os.environ.get("LETHE_TEST_DATA", "/nowhere")) / "llama2_tokenizer.model"
    if not path.exists():
        pytest.skip("LETHE_TEST_DATA names no folder with llama2_tokenizer.model")
    tokenizer = load_tokenizer(path)
    assert (tokenizer.vocabulary_size, tokenizer.start_id, tokenizer.end_id) == (32000, 1, 2)
    tokens = [1, *tokenizer.encode("Answer:"), *tokenizer.encode_continuation("Once upon a time"), 2]
    assert tokenizer.decode(tokens) == "Answer: Once upon a time"


def test_tokenizer_must_fit_the_network() -> None:
    tokenizer = WordTokenizer()
    require_tokenizer_fits(tokenizer, tokenizer.vocabulary_size)
    with pytest.raises(InvalidTokenizer, match=f"has {tokenizer.vocabulary_size} tokens, the network 20"):
        require_tokenizer_fits(tokenizer, 20)


def test_cut_tokenizer_keeps_what_is_used() -> None:
    tokenizer = WordTokenizer()
    kept = used_ids(tokenizer, ["Where does Ada live?", "Ada lives in Rome"])
    cut = CutTokenizer(tokenizer, kept)
    assert cut.vocabulary_size == len(kept) < tokenizer.vocabulary_size
    assert cut.decode(cut.encode("Ada lives in Rome")) == "Ada lives in Rome"
    assert kept[cut.end_id] == tokenizer.end_id
    with pytest.raises(InvalidTokenizer, match=r"'Bo' needs token .* reduce it with all texts"):
        cut.encode_continuation("Bo")
