"""Questions and answers from files with their tokenizers and batches, and every mistake of such files."""

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lethe.data import tokenizers
from lethe.data.datasets.questions import QuestionAnswer, read_question_answers, read_refusals
from lethe.data.errors import InvalidText, InvalidTokenizer
from lethe.data.question_answers import CutTokenizer, pad_answers, tokenize_answer, used_ids
from lethe.data.tokenizers import QUESTION, load_tokenizer, require_tokenizer_fits
from lethe.evaluation.text import answer_losses, generate_greedily
from lethe.training.pretrained import load_llama, with_vocabulary
from tests.support.tiny_language import PERSONS, REFUSAL, WordTokenizer, answer_loader, get_tokens

ROW = {"question": "Who?", "answer": "Ada."}


def written(folder: Path, *lines: object) -> Path:
    path = folder / "forget.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), "utf-8")
    return path


def test_questions_are_read_in_order(tmp_path: Path) -> None:
    full = {**ROW, "paraphrased_answer": "It is Ada.", "perturbed_answer": ["Bo.", "Cy."], "group": 7, "other": 1}
    assert read_question_answers(written(tmp_path, ROW, "", full)) == [
        QuestionAnswer("Who?", "Ada."),
        QuestionAnswer("Who?", "Ada.", "It is Ada.", ("Bo.", "Cy."), "7"),
    ]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "line 2 is not JSON"),
        ([1], "line 2 is not a JSON object but list"),
        ({"answer": "a", "q": "b"}, "line 2 has no key `question`; it has 'answer', 'q'"),
        ({"question": "a"}, "line 2 has no key `answer`; it has 'question'"),
        ({"question": None, "answer": "a"}, "line 2: `question` must be a text that is not empty, not None"),
        ({**ROW, "answer": "  "}, "line 2: `answer` must be a text that is not empty, not '  '"),
        ({**ROW, "answer": 5}, "line 2: `answer` must be a text"),
        ({**ROW, "paraphrased_answer": ""}, "line 2: `paraphrased_answer`"),
        ({**ROW, "perturbed_answer": "x"}, "line 2: `perturbed_answer` must be a list"),
        ({**ROW, "perturbed_answer": ["x", ""]}, "line 2: `perturbed_answer` 1"),
    ],
)
def test_questions_name_the_line_at_fault(tmp_path: Path, line: object, sentence: str) -> None:
    with pytest.raises(InvalidText, match=rf"forget\.jsonl, {sentence}"):
        read_question_answers(written(tmp_path, ROW, line))


def test_questions_need_a_file_with_text(tmp_path: Path) -> None:
    with pytest.raises(InvalidText, match="holds no question"):
        read_question_answers(written(tmp_path, "", " "))
    with pytest.raises(InvalidText, match=r"nowhere\.jsonl cannot be read"):
        read_question_answers(tmp_path / "nowhere.jsonl")
    (tmp_path / "latin.jsonl").write_bytes("é".encode("latin-1"))
    with pytest.raises(InvalidText, match="cannot be read as UTF-8"):
        read_question_answers(tmp_path / "latin.jsonl")


def test_only_newlines_end_a_line_of_a_file(tmp_path: Path) -> None:
    rows = [{"question": "Who\u2028is\x85it?", "answer": "A\x1cda."}, ROW]
    path = tmp_path / "forget.jsonl"
    lines = "\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_bytes(b"\xef\xbb\xbf" + lines.encode())  # as some editors begin a file
    assert [one.question for one in read_question_answers(path)] == ["Who\u2028is\x85it?", "Who?"]


def test_refusals_are_lines(tmp_path: Path) -> None:
    assert read_refusals(written(tmp_path, "I don't know.", "", " No idea. ")) == ["I don't know.", "No idea."]
    with pytest.raises(InvalidText, match="holds no answer"):
        read_refusals(written(tmp_path, ""))


def test_labels_are_the_answer_and_its_end() -> None:
    tokenizer, answer = WordTokenizer(), get_tokens(PERSONS[0])
    batch = pad_answers([answer, get_tokens(PERSONS[1], "Bo lives")], padding_id=1)
    first = batch["labels"][0]
    assert tokenizer.decode(first[first != -100].tolist()) == PERSONS[0].answer
    assert first[-1] == tokenizer.end_id
    assert (first[: answer.answer_start] == -100).all()
    assert int((first != -100).sum()) == answer.answer_tokens


def test_padding_has_no_mask_and_no_label() -> None:
    batch = pad_answers([get_tokens(PERSONS[0]), get_tokens(PERSONS[1], "Bo")], padding_id=1)
    assert batch["attention_mask"][1].tolist()[-3:] == [0, 0, 0]
    assert batch["labels"][1].tolist()[-3:] == [-100, -100, -100]
    assert batch["input_ids"][1].tolist()[-3:] == [1, 1, 1]


@pytest.mark.parametrize("answer", ["", "  "])
def test_answer_must_not_be_empty(answer: str) -> None:
    with pytest.raises(InvalidText, match="the answer to 'Where does Ada live\\?' is empty"):
        tokenize_answer(WordTokenizer(), PERSONS[0].question, answer, context=20)


def test_answer_must_fit_the_context() -> None:
    with pytest.raises(
        InvalidText, match=r"has 4 tokens and its question 7: with the end token 12, more than .* of 11"
    ):
        tokenize_answer(WordTokenizer(), PERSONS[0].question, PERSONS[0].answer, context=11)


def test_loader_of_a_run_gives_refusals_beside_answers() -> None:
    answers = [get_tokens(person) for person in PERSONS]
    refusals = [get_tokens(person, REFUSAL) for person in PERSONS]
    batch = next(iter(answer_loader(answers, refusals, batch_size=4)))
    labels = batch["idk_labels"][2]
    assert WordTokenizer().decode(labels[labels != -100].tolist()) == REFUSAL
    assert torch.equal(batch["idk_input_ids"][2, :7], batch["input_ids"][2, :7])


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


STORY = "Once upon a time, there was a little girl named Lily."


def real(name: str) -> Path:
    path = Path(os.environ.get("LETHE_TEST_DATA", "/nowhere")) / name
    if not path.exists():
        pytest.skip(f"LETHE_TEST_DATA names no folder with {name}")
    return path


def test_tofu_is_read_whole(tmp_path: Path) -> None:
    with tarfile.open(real("tofu.tar.xz")) as archive:
        archive.extractall(tmp_path, filter="data")
    sizes = {
        "full.json": (4000, 0),
        "forget10_perturbed.json": (400, 5),
        "retain_perturbed.json": (400, 5),
        "real_authors_perturbed.json": (100, 3),
        "world_facts_perturbed.json": (117, 3),
    }
    for name, (n_questions, n_wrong) in sizes.items():
        questions = read_question_answers(next(tmp_path.rglob(name)))
        assert len(questions) == n_questions
        assert {len(question.wrong_answers) for question in questions} == {n_wrong}
    assert len(read_refusals(next(tmp_path.rglob("idontknow.jsonl")))) == 100


def test_story_network_goes_on_with_a_story() -> None:
    pytest.importorskip("sentencepiece")
    tokenizer = load_tokenizer(real("llama2_tokenizer.model"))
    network = load_llama(real("stories15m_fp16.safetensors"))
    require_tokenizer_fits(tokenizer, network.shape.vocabulary_size)
    prompt = [1, *tokenizer.encode(STORY)]
    (tokens,) = generate_greedily(network, [prompt], end_id=tokenizer.end_id, max_new_tokens=11)
    assert tokenizer.decode(tokens) == "She loved to play outside in the sunshine. One"


def test_cut_story_network_finds_its_story_likelier() -> None:
    pytest.importorskip("sentencepiece")
    tokenizer = load_tokenizer(real("llama2_tokenizer.model"))
    network = load_llama(real("stories15m_fp16.safetensors"))
    answers = ["She loved to play outside in the sunshine.", "Sunshine the in outside play to loved she."]
    kept = used_ids(tokenizer, [STORY, *answers])
    cut = CutTokenizer(tokenizer, kept)
    cut.prompt = QUESTION  # a story is continued, nothing is asked
    small = with_vocabulary(network, kept)
    tokens = [tokenize_answer(cut, STORY, answer, context=256) for answer in answers]
    losses = answer_losses(small, tokens, padding_id=cut.end_id)
    assert losses[0] < losses[1] / 2
    assert np.isfinite(losses).all()
