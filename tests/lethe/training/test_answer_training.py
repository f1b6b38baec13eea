"""Training language models for a split: a function of job and seed, resumable, from pretrained weights, by LoRA."""

from dataclasses import replace

import pytest
import torch

from lethe.competition.file import Training
from lethe.competition.task import CausalLm
from lethe.networks.builders import build
from lethe.training.answer_training import AnswerJob
from lethe.training.trainer import State, train_model
from tests.support.tiny_language import PERSONS, WordTokenizer, get_tokens

SIZES = {"width": 16, "layers": 1, "heads": 2, "hidden_width": 24, "context": 24}
NETWORK = {"task": "causal-lm", "name": "llama", "options": SIZES, "padding_id": 1} | {
    "vocabulary_size": WordTokenizer().vocabulary_size
}
RECIPE = Training(epochs=4, batch_size=4, optimizer="adamw", learning_rate=0.01, schedule="cosine", warmup_epochs=1)


def job(*, lora_rank: int | None = None, pretrained: State | None = None) -> AnswerJob:
    return AnswerJob(
        network=NETWORK,
        recipe=RECIPE,
        task=CausalLm(loss_on="all", lora_rank=lora_rank),
        answers=tuple(get_tokens(person) for person in PERSONS),
        pretrained=pretrained,
        device=torch.device("cpu"),
    )


def is_equal(first: State, second: State) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_a_model_is_a_function_of_its_seed() -> None:
    assert is_equal(train_model(job(), 1), train_model(job(), 1))
    assert not is_equal(train_model(job(), 1), train_model(job(), 2))


@pytest.mark.parametrize("lora_rank", [None, 2])
def test_a_training_goes_on_from_a_snapshot_to_the_same_bits(lora_rank: int | None) -> None:
    wanted = train_model(job(lora_rank=lora_rank), 1)
    begun = job(lora_rank=lora_rank).start(1)
    for _ in range(2):
        begun.run_epoch()
    resumed = job(lora_rank=lora_rank).start(1)
    resumed.restore(begun.snapshot())
    assert resumed.epoch == 2
    while resumed.epoch < RECIPE.epochs:
        resumed.run_epoch()
    assert is_equal(resumed.state(), wanted)


def test_lora_changes_linear_layers_alone_and_keeps_names_and_shapes() -> None:
    start = build(NETWORK).state_dict()
    trained = train_model(job(lora_rank=2, pretrained=start), 1)
    assert {name: tensor.shape for name, tensor in trained.items()} == {n: t.shape for n, t in start.items()}
    changed = {name for name in start if not torch.equal(start[name], trained[name])}
    parts = ("query_key_value", "attention_output", "gate_and_up", "down")
    assert changed == {f"blocks.0.{part}.weight" for part in parts}


def test_models_start_from_pretrained_weights() -> None:
    start = train_model(job(), 1)
    unmoved = replace(job(pretrained=start), recipe=RECIPE.model_copy(update={"learning_rate": 1e-12}))
    learnt = train_model(unmoved, 2)
    assert all(torch.allclose(learnt[name], start[name], atol=1e-6) for name in start)
    assert unmoved.accuracy(learnt) == unmoved.accuracy(start) > job().accuracy(build(NETWORK).state_dict())
