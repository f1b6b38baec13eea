"""Training of language models: what is learnt, seeds, snapshots, pretrained weights and LoRA."""

from dataclasses import replace

import pytest
import torch

from lethe.competition.file import Training
from lethe.competition.task import CausalLm
from lethe.evaluation.text import answer_losses
from lethe.networks.builders import build
from lethe.networks.language_models import Gpt2, Gpt2Shape, Llama, LlamaShape
from lethe.training.answer_training import AnswerJob, FineTuning, add_lora, epoch_batches, merge_lora
from lethe.training.trainer import State, train_model
from tests.support.tiny_language import CONTEXT, PERSONS, WordTokenizer, fine_tune, get_tokens, tiny_network

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


ANSWERS = [get_tokens(person) for person in PERSONS]


@pytest.mark.parametrize("loss_on", ["answers", "all"])
def test_fine_tuning_learns_the_answers(loss_on: str) -> None:
    network = tiny_network()
    before = answer_losses(network, ANSWERS, padding_id=1)
    recipe = FineTuning(epochs=30, batch_size=4, learning_rate=1e-2, loss_on=loss_on, precision="float32")
    fine_tune(network, ANSWERS, recipe)
    after = answer_losses(network, ANSWERS, padding_id=1)
    assert before.mean() > 2
    assert after.max() < 0.3


@pytest.mark.parametrize("kind", [Llama, Gpt2])
def test_additions_of_low_rank_learn_what_a_trained_network_does_not_know(kind: type[Llama] | type[Gpt2]) -> None:
    torch.manual_seed(0)
    shape = {Llama: LlamaShape, Gpt2: Gpt2Shape}[kind]
    network = kind(shape(WordTokenizer().vocabulary_size, 64, 2, 2, 128, CONTEXT))  # type: ignore[arg-type]
    recipe = FineTuning(epochs=100, batch_size=4, learning_rate=3e-3, loss_on="all", precision="float32")
    fine_tune(network, ANSWERS, recipe)
    towns = [person.answer.split()[-1] for person in PERSONS[3:] + PERSONS[:3]]
    moved = [get_tokens(person, f"{person.group} lives in {town}") for person, town in zip(PERSONS, towns, strict=True)]
    before = answer_losses(network, moved, padding_id=1)
    add_lora(network, rank=8)
    additions = FineTuning(epochs=60, batch_size=4, learning_rate=1e-2, precision="float32")
    fine_tune(network, moved, additions)
    merge_lora(network)
    assert before.min() > 0.9
    assert answer_losses(network, moved, padding_id=1).max() < 0.3


def test_epoch_holds_every_answer_once() -> None:
    generator = torch.Generator().manual_seed(0)
    answers = [get_tokens(person, f"{' '.join(['lives'] * i)} in Rome") for i, person in enumerate(PERSONS)]
    batches = list(epoch_batches(answers, FineTuning(batch_size=3), generator, padding_id=1))
    seen = [tuple(row[mask == 1].tolist()) for b in batches for row, mask in zip(*list(b.values())[:2], strict=True)]
    assert sorted(seen) == sorted(answer.tokens for answer in answers)
    assert [len(batch["labels"]) for batch in batches].count(3) == 2


def test_learning_rate_rises_and_falls_to_zero() -> None:
    recipe = FineTuning(learning_rate=1.0, warm_up=0.2)
    rates = [recipe.learning_rate_at(step, 10) for step in range(11)]
    assert rates[:3] == [0.5, 1.0, 1.0]
    assert rates[1:] == sorted(rates[1:], reverse=True)
    assert rates[10] == pytest.approx(0)
