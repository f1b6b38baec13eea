"""TOFU's files and the pretrained story network, where LETHE_TEST_DATA names a folder that holds them."""

import os
import tarfile
from pathlib import Path

import numpy as np
import pytest

from lethe.data.answer_batches import tokenize_answer
from lethe.data.datasets.questions import read_question_answers, read_refusals
from lethe.data.split_questions import CutTokenizer, used_ids
from lethe.data.tokenizers import QUESTION, load_tokenizer, require_tokenizer_fits
from lethe.evaluation.text import answer_losses, generate_greedily
from lethe.training.pretrained import load_llama, with_vocabulary

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
