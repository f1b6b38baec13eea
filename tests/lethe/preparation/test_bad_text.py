"""What is wrong with a text competition is said in one sentence, before anything is trained."""

import json
import re
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from lethe.competition.file import parse_competition
from lethe.data.datasets.questions import open_questions, train_tokenizer
from lethe.data.errors import InvalidSplit
from lethe.errors import AppError, InvalidCompetitionFile
from lethe.preparation.file_check import check_preparation
from lethe.preparation.prepare import prepare_split
from lethe.training.pretrained import load_llama
from tests.support.towns import towns_toml, write_towns

Rows = list[dict[str, Any]]
PRETRAINED = {"vocab": "300", "dim": "16", "layers": "1", "heads": "2", "hidden": "24", "context": "64"}
DETAILS = ('["questions.jsonl"]', '["questions.jsonl"], details = ["details.jsonl"]')


def rewritten(root: Path, change: Callable[[Rows], object]) -> None:
    path = root / "questions.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    change(rows)
    path.write_text("\n".join(map(json.dumps, rows)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda rows: [row.update(answer="Rome and Oslo " * 40) for row in rows[::3]],
            r"with the end token \d+, more than the network's context of 64",
        ),
        (
            lambda rows: rows[4].update(answer="  "),
            r"questions.jsonl, line 5: `answer` must be a text that is not empty",
        ),
        (
            lambda rows: [row.update(perturbed_answer=["Rome"]) for row in rows[::3]],
            r"questions have \[1, 2\] wrong answers: each must have the same number",
        ),
        (
            lambda rows: [row.pop("group") for row in rows],
            r"has no `group`: name it, or set dataset.options.group_size",
        ),
        (
            lambda rows: [row.update(answer=f"{row['answer']} So it is.") for row in rows],
            r"details have the question 'Where does Adalin live\?' with another answer than",
        ),
        (
            lambda rows: rows[7].update(answer=f"{rows[7]['answer']} So it is."),
            r"details have the question 'Where does \w+ work\?' with another answer than",
        ),
    ],
)
def test_questions_that_do_not_fit_are_named(change: Callable[[Rows], object], said: str, tmp_path: Path) -> None:
    root = write_towns(tmp_path / "towns")
    toml = towns_toml(root, epochs=1)
    if said.startswith("details"):
        shutil.copy(root / "questions.jsonl", root / "details.jsonl")
        toml = toml.replace(*DETAILS)
    rewritten(root, change)
    with pytest.raises(AppError, match=said):
        prepare_split(parse_competition(toml), "public", tmp_path / "split")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            '["questions.jsonl"]',
            '["questions.jsonl", "questions.jsonl"]',
            r"have the question 'Where does Adalin live\?' with the same answer twice",
        ),
        ('"questions.jsonl"', '"../questions.jsonl"', r"must name a file in root, without a folder"),
        ('"questions.jsonl"', '"broken.jsonl"', r"broken.jsonl, line 1 is not JSON: Expecting ':' delimiter"),
        ("refusals.txt", "latin.txt", r"latin.txt cannot be read as UTF-8 text: line 1 is not UTF-8"),
        ("width = 32", "breadth = 32", r"has no option 'breadth': its sizes are width, layers"),
        (
            "vocabulary = 400",
            'vocabulary = 400, tokenizer = "tokenizer.json"',
            r"names either a tokenizer, or the vocabulary",
        ),
        (
            'loss_on = "all"',
            "lora_rank = 4",
            r"task.lora_rank trains additions to pretrained weights: name network.options.pretrained",
        ),
    ],
)
def test_options_and_files_that_do_not_fit_are_named(old: str, new: str, said: str, tmp_path: Path) -> None:
    root = write_towns(tmp_path / "towns")
    (root / "broken.jsonl").write_text('{"question": "Who?", "answer" "Ada"}')
    (root / "latin.txt").write_bytes("Je ne sais pas, désolé.".encode("latin-1"))
    file = parse_competition(towns_toml(root, epochs=1).replace(old, new))
    with pytest.raises(AppError, match=said):
        prepare_split(file, "public", tmp_path / "split")


@pytest.mark.parametrize(
    ("size", "loss_on", "said"),
    [
        (500, 'loss_on = "all"', r"the tokenizer has \d+ tokens, the network 300: it must have at least as many"),
        (300, "lora_rank = 17", r"task.lora_rank must be at most the network's width, 16, was 17"),
    ],
)
def test_pretrained_network_that_does_not_fit_is_named(size: int, loss_on: str, said: str, tmp_path: Path) -> None:
    root = write_towns(tmp_path / "towns")
    texts = ["Where does Adalin live?"] * 9 + [str(i) * 3 for i in range(400)]
    train_tokenizer(texts, size=size).save(root / "tok.json")
    torch.manual_seed(0)
    shape = {"e.weight": (300, 16), "n.w": (16,), "b.0.n1.w": (16,), "b.0.n2.w": (16,), "b.0.qkv.weight": (48, 16)}
    shape |= {"b.0.o.weight": (16, 16), "b.0.w13.weight": (48, 16), "b.0.w2.weight": (16, 24)}
    save_file({name: torch.randn(*sizes) for name, sizes in shape.items()}, root / "net.safetensors", PRETRAINED)
    assert load_llama(root / "net.safetensors").shape.vocabulary_size == 300
    toml = towns_toml(root, epochs=1).replace("vocabulary = 400", 'tokenizer = "tok.json"')
    toml = re.sub(r"options = { width.*", 'options = { pretrained = "net.safetensors" }', toml)
    with pytest.raises(AppError, match=said):
        prepare_split(parse_competition(toml.replace('loss_on = "all"', loss_on)), "public", tmp_path / "split")


def test_the_check_before_preparing_reads_questions(tmp_path: Path) -> None:
    root = write_towns(tmp_path / "towns")
    sizes = check_preparation(parse_competition(towns_toml(root, epochs=1)))
    assert sizes["public"] == {"retain": 24, "forget": 6, "validation": 3, "test": 3}
    few = towns_toml(root, epochs=1).replace("fraction = 0.2", "fraction = 0.001")
    with pytest.raises(InvalidSplit, match=r"of 30 training questions is no question: the forget set would be empty"):
        check_preparation(parse_competition(few))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('optimizer = "adamw"', 'optimizer = "sgd"', 'training.optimizer of a "causal-lm" task is "adamw"'),
        ('schedule = "cosine"', 'schedule = "cosine"\nmixing = "mixup"', "training.mixing is for images"),
        ('by = "person"', 'by = "class"', 'splits.forget.by of a "causal-lm" task is one of "person"'),
        ('"forget_quality"', '"accuracy_gap"', "accuracy_gap needs arrays of level 1"),
        ("[report]", '[report]\nbaselines = ["scrub"]', "scrub is for tasks of kind 'image-classification'"),
        ("[limits]", '[submissions]\nmodes = ["notebook"]\n[limits]', "takes functions only"),
        ('kind = "causal-lm"', 'kind = "speech"', "image-classification"),
        ('loss_on = "all"', 'loss_on = "questions"', "answers"),
    ],
)
def test_a_file_that_does_not_fit_its_task_is_refused(old: str, new: str, said: str) -> None:
    toml = towns_toml("towns")
    assert old in toml
    with pytest.raises(InvalidCompetitionFile, match=said):
        parse_competition(toml.replace(old, new))


def test_metrics_and_methods_of_text_are_not_for_images() -> None:
    images = """
slug = "digits"
title = "Digits"
opens_at = 2027-01-01T00:00:00Z
closes_at = 2027-02-01T00:00:00Z
dataset = { name = "digits" }
network = { name = "mlp" }
training = { epochs = 1, learning_rate = 0.1 }
[report]
"""
    parse_competition(images)
    for line, said in (
        ('metrics = ["forget_quality"]', "forget_quality needs arrays of level 5"),
        ('baselines = ["npo"]', "npo is for tasks of kind 'causal-lm'"),
    ):
        with pytest.raises(InvalidCompetitionFile, match=said):
            parse_competition(images + line)


def test_details_are_of_the_same_answer_not_only_of_the_same_question(tmp_path: Path) -> None:
    root = write_towns(tmp_path / "towns")
    rewritten(root, lambda rows: [rows[i].update(question="Where does the author live?") for i in (0, 3)] and None)
    shutil.copy(root / "questions.jsonl", root / "details.jsonl")
    rewritten(root, lambda rows: [row.pop("perturbed_answer") for row in rows] and None)
    toml = towns_toml(root).replace(*DETAILS)
    first, _, _, other, *_ = open_questions(parse_competition(toml).dataset).questions
    assert (first.question, first.answer) == ("Where does the author live?", "Adalin lives in Rome.")
    assert other.answer == "Adamar lives in Oslo."
    assert other.wrong_answers == tuple(f"Adamar dwells in {town}." for town in ("Lima", "Bern"))


@pytest.mark.parametrize(("named", "on_disk"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_names_with_accents_are_found_on_any_disk(tmp_path: Path, named: str, on_disk: str) -> None:
    name, stored = (unicodedata.normalize(form, "fragen-äö.jsonl") for form in (named, on_disk))
    root = write_towns(tmp_path / "towns")
    (root / "questions.jsonl").rename(root / stored)
    (root / "refusals.txt").rename(root / unicodedata.normalize(on_disk, "nö.txt"))
    toml = towns_toml(root, n_models=4).replace("questions.jsonl", name)
    toml = toml.replace("refusals.txt", unicodedata.normalize(named, "nö.txt"))
    assert len(open_questions(parse_competition(toml).dataset)) == 36
