"""Fine-tuning: it learns, repeats with its seed, sees every answer once an epoch, and follows its learning rate."""

import copy

import pytest
import torch

from lethe.evaluation.text import answer_losses
from lethe.networks.language_models import Gpt2, Gpt2Shape, Llama, LlamaShape
from lethe.training.answer_training import FineTuning, add_lora, epoch_batches, merge_lora
from tests.support.tiny_language import CONTEXT, PERSONS, WordTokenizer, fine_tune, get_tokens, tiny_network

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


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_fine_tuning_repeats_with_its_seed(precision: str) -> None:
    start, recipe = tiny_network(), FineTuning(epochs=2, batch_size=3, learning_rate=1e-2, precision=precision)
    networks = [copy.deepcopy(start) for _ in range(3)]
    for network, seed in zip(networks, (1, 1, 2), strict=True):
        fine_tune(network, ANSWERS, recipe, seed=seed)
    weights = [network.embedding.weight for network in networks]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


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


def test_fine_tuning_trains_lora_alone() -> None:
    network = tiny_network()
    embedding = network.embedding.weight.clone()
    add_lora(network, rank=4)
    fine_tune(network, ANSWERS, FineTuning(epochs=15, batch_size=4, learning_rate=2e-2))
    merge_lora(network)
    assert torch.equal(network.embedding.weight, embedding)
    assert answer_losses(network, ANSWERS, padding_id=1).mean() < 2.0


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
