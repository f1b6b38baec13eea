"""AltPO's answers, which leave the true one, keep the question and are drawn; every method on a GPT-2."""

from importlib import import_module

import pytest
import torch
from torch import Tensor, nn

from lethe.methods.catalogue import method_ids
from lethe.methods.text import altpo, common
from lethe.networks.language_models import TransformersNetwork
from tests.support.tiny_language import (
    CONTEXT,
    PERSONS,
    REFUSAL,
    WordTokenizer,
    answer_loader,
    get_tokens,
    tiny_network,
)

METHODS = method_ids("causal-lm")
END, VOCABULARY = 1, 8
IDS = torch.tensor([[2, 3, 4, 5, 6, END], [2, 7, END, 0, 0, 0]])
LABELS = torch.tensor([[-100, -100, 4, 5, 6, END], [-100, 7, END, -100, -100, -100]])
BATCH = {"input_ids": IDS, "attention_mask": (LABELS != -100).long(), "labels": LABELS}
BATCH["attention_mask"][:, :2] = 1


class Given(nn.Module):
    """A network that finds each token as likely as it is told."""

    def __init__(self, likely: Tensor) -> None:
        super().__init__()
        self.scores = nn.Parameter(likely.log())

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.scores.expand(*input_ids.shape, -1)


EVEN = Given(torch.ones(VOCABULARY))


@pytest.mark.parametrize("seed", range(20))
def test_alternative_keeps_question_and_leaves_answer(seed: int) -> None:
    torch.manual_seed(seed)
    before = {name: tensor.clone() for name, tensor in BATCH.items()}
    found = altpo.alternatives(EVEN, BATCH)
    assert all(torch.equal(BATCH[name], tensor) for name, tensor in before.items())
    assert torch.equal(found["input_ids"][0, :2], IDS[0, :2])
    assert torch.equal(found["labels"][0, :2], LABELS[0, :2])
    for row, answer in ((0, [4, 5, 6]), (1, [7])):
        given = found["labels"][row][found["labels"][row] != -100]
        branch = next(i for i, token in enumerate(answer) if given[i] != token)
        assert given[branch] != END
        assert given[-1] == END
        assert END not in given[:-1]
        masked = found["attention_mask"][row] == 0
        assert (found["labels"][row][masked] == -100).all()
        labelled = found["labels"][row] != -100
        assert torch.equal(found["input_ids"][row][labelled], found["labels"][row][labelled])


def test_tokens_are_drawn_as_likely_as_the_network_finds_them() -> None:
    likely = torch.tensor([0.0, 0.0, 0.0, 0.2, 0.0, 0.0, 0.0, 0.8])
    many = {name: tensor[:1].repeat(4000, 1) for name, tensor in BATCH.items()}
    torch.manual_seed(0)
    drawn = altpo.alternatives(Given(likely), many)["labels"][:, 4]  # the last token before the end
    assert set(drawn.unique().tolist()) == {3, 7}
    assert float((drawn == 7).float().mean()) == pytest.approx(0.8, abs=0.03)


def test_every_token_but_the_last_can_be_the_first_other_one() -> None:
    torch.manual_seed(0)
    many = {name: tensor[:1].repeat(600, 1) for name, tensor in BATCH.items()}
    found = altpo.alternatives(EVEN, many)["input_ids"][:, 2:5]
    first = (found != IDS[0, 2:5]).int().argmax(1)
    assert first.bincount().tolist() == pytest.approx([200] * 3, abs=50)


@pytest.mark.parametrize(("method", "rank"), [*((method, 0) for method in METHODS), ("npo", 2), ("rmu", 2)])
def test_method_takes_a_gpt2_of_transformers(method, rank, monkeypatch):
    module = import_module(f"lethe.methods.text.{method}")
    monkeypatch.setattr(common, "LORA_RANK", rank)
    monkeypatch.setattr(module, "LR", 1e-3)
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": CONTEXT, "bos_token_id": 0, "eos_token_id": 1}
    net = TransformersNetwork({"model_type": "gpt2", "vocab_size": WordTokenizer().vocabulary_size, **sizes}).eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    retain, forget, refused = (
        [get_tokens(person, answer) for person in persons]
        for persons, answer in ((PERSONS[:2], None), (PERSONS[6:], None), (PERSONS[6:], REFUSAL))
    )
    loaders = answer_loader(retain, batch_size=2), answer_loader(forget, refused, batch_size=2)
    module.unlearning(net, *loaders, None)
    after = net.state_dict()
    form = {name: (value.shape, value.dtype) for name, value in after.items()}
    assert form == {name: (value.shape, value.dtype) for name, value in before.items()}
    assert all(torch.isfinite(value).all() for value in after.values())
    name = "model.transformer.h.1.mlp.c_proj.weight"
    assert not torch.equal(after[name], before[name])
    assert not net.training
    assert all(parameter.requires_grad for parameter in net.parameters())


@pytest.mark.parametrize("method", ["idk", "dpo"])
def test_method_says_that_refusals_are_missing(method):
    without = answer_loader([get_tokens(person) for person in PERSONS], batch_size=2)
    with pytest.raises(KeyError, match="forget batches hold refusals"):
        import_module(f"lethe.methods.text.{method}").unlearning(tiny_network(), without, without, None)
