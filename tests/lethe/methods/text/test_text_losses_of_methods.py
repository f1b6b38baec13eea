"""What each text method minimises, term by term, on a network that has moved away from its original.

The expected values come from plain formulas; every constant has an unusual value, so a
term or a constant that is left out changes the result.
"""

import copy
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from lethe.methods.catalogue import method_ids
from lethe.methods.text import common
from lethe.networks.language_models import Llama
from tests.support.tiny_language import PERSONS, REFUSAL, answer_loader, get_tokens, tiny_network

Batch = dict[str, Tensor]
METHODS = sorted(method_ids("causal-lm"))
CONSTANTS = {"ALPHA": 0.7, "BETA": 0.6, "GAMMA": 0.3, "DELTA": 0.2, "STEERING": 3.0, "SCALE": 1.5, "DEPTH": 0.5}
CONSTANTS |= {"BETA1": 1.4, "BETA2": 0.8, "SPARED": 2, "BOUND": 0.4}
LR, EPOCHS = 1e-3, 3


def loader(persons: tuple, *, batch_size: int = 2) -> DataLoader:
    """Return batches; every second answer is a single word, so that shorter rows are padded."""
    own = [person.answer if i % 2 else person.answer.split()[-1] for i, person in enumerate(persons)]
    answers = [get_tokens(person, answer) for person, answer in zip(persons, own, strict=True)]
    refusals = [get_tokens(person, REFUSAL) for person in persons]
    return answer_loader(answers, refusals, batch_size=batch_size)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Return a method's module with unusual constants."""

    def load(method: str) -> ModuleType:
        module = import_module(f"lethe.methods.text.{method}")
        for name, value in {**CONSTANTS, "LR": LR, "EPOCHS": EPOCHS}.items():
            if hasattr(module, name):
                monkeypatch.setattr(module, name, value)
        return module

    return load


class Trained:
    """Stands for a method's `train`: moves the network a little, and keeps the loss on one batch of each set."""

    def __init__(self, forget: Batch, retain: Batch) -> None:
        self.batches = forget, retain
        self.loss = torch.tensor(0.0)
        self.trained: list[str] = []

    def __call__(
        self, net: torch.nn.Module, loss_of: Callable[..., Tensor], *loaders: DataLoader | None, **settings: Any
    ) -> None:
        only = {id(weight) for weight in settings.pop("only", net.parameters())}
        self.trained = [name for name, parameter in net.named_parameters() if id(parameter) in only]
        settings.pop("state", None)  # what the loss remembers
        assert settings == {"lr": LR, "epochs": EPOCHS, "weight_decay": 0.01}
        move(net)
        self.loss = loss_of(self.batches[0], {} if loaders[1] is None else self.batches[1]).detach()


@torch.no_grad()
def move(net: torch.nn.Module) -> None:
    generator = torch.Generator().manual_seed(5)
    for parameter in net.parameters():
        parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))


def logits(net: torch.nn.Module, batch: Batch) -> Tensor:
    with torch.no_grad():
        return net(batch["input_ids"], batch["attention_mask"])


def nll(net: torch.nn.Module, batch: Batch) -> Tensor:
    found = logits(net, batch)[:, :-1].log_softmax(-1)
    labels = batch["labels"][:, 1:]
    picked = found.gather(2, labels.clamp(min=0)[..., None])[..., 0]
    return -(picked * (labels != -100)).sum(1)


def n_tokens(*batches: Batch) -> Tensor:
    return sum((batch["labels"] != -100).sum(1) for batch in batches)  # type: ignore[return-value]


def mean(net: torch.nn.Module, *batches: Batch) -> Tensor:
    """Return the mean loss of all labelled tokens of some batches together."""
    total = torch.stack([nll(net, batch).sum() for batch in batches]).sum()
    return total / sum(int((batch["labels"] != -100).sum()) for batch in batches)


def refused(batch: Batch) -> Batch:
    return {name: batch["idk_" + name] for name in ("input_ids", "attention_mask", "labels")}


def kl(net: torch.nn.Module, original: torch.nn.Module, batch: Batch) -> Tensor:
    real = batch["attention_mask"].bool()
    own, reference = (logits(each, batch)[real].log_softmax(-1) for each in (net, original))
    return (reference.exp() * (reference - own)).sum(-1).mean()


def log_sigmoid(value: Tensor) -> Tensor:
    return torch.log(torch.sigmoid(value))


def lowered_distance(net: torch.nn.Module, original: torch.nn.Module, batch: Batch) -> Tensor:
    """Return UNDIAL's distance, one token at a time."""
    own, teacher, found = logits(net, batch), logits(original, batch), []
    for row, place in answer_places(batch):
        target = teacher[row, place - 1].clone()
        target[batch["labels"][row, place]] -= CONSTANTS["BETA"]
        found.append(-(target.softmax(-1) * own[row, place - 1].log_softmax(-1)).sum())
    return torch.stack(found).mean()


def weighted(net: torch.nn.Module, batch: Batch, weight: Callable[[float], float]) -> Tensor:
    """Return the mean of weight(p) * -log p over the answers' tokens, one at a time."""
    found = logits(net, batch).log_softmax(-1)
    chosen = [found[row, place - 1, batch["labels"][row, place]] for row, place in answer_places(batch)]
    return torch.stack([-weight(float(one.exp())) * one for one in chosen]).mean()


def distance_without_truth(net: torch.nn.Module, batch: Batch) -> Tensor:
    """Return CE-U's distance over the answers' tokens but the first two of each."""
    found, own, seen = [], logits(net, batch), dict.fromkeys(range(len(batch["labels"])), 0)
    for row, place in answer_places(batch):
        seen[row] += 1
        if seen[row] > 2:
            target = own[row, place - 1].softmax(-1)
            target[batch["labels"][row, place]] = 0
            found.append(-(target / target.sum() * own[row, place - 1].log_softmax(-1)).sum())
    return torch.stack(found).mean()


def squared_margin(net: torch.nn.Module, batch: Batch) -> Tensor:
    own = logits(net, batch)
    found = [own[row, place - 1] for row, place in answer_places(batch)]
    return torch.stack([(one.max() - one.mean()) ** 2 for one in found]).mean()


def answer_places(batch: Batch) -> list[list[int]]:
    return (batch["labels"] != -100).nonzero().tolist()


def gain(net: torch.nn.Module, original: torch.nn.Module, batch: Batch) -> Tensor:
    return nll(original, batch) - nll(net, batch)


EXPECTED: dict[str, Callable[[Llama, Llama, Batch, Batch], Tensor]] = {
    "ga": lambda net, original, f, r: -mean(net, f),
    "graddiff": lambda net, original, f, r: 0.7 * mean(net, r) - mean(net, f),
    "idk": lambda net, original, f, r: mean(net, refused(f), r),
    "kl_min": lambda net, original, f, r: 0.7 * kl(net, original, r) - mean(net, f),
    "npo": lambda net, original, f, r: (
        -2 / 0.6 * log_sigmoid(0.6 * (nll(net, f) - nll(original, f))).mean() + 0.7 * mean(net, r)
    ),
    "dpo": lambda net, original, f, r: (
        -2 / 0.6 * log_sigmoid(0.6 * (gain(net, original, refused(f)) - gain(net, original, f))).mean()
        + 0.7 * mean(net, r)
    ),
    "simnpo": lambda net, original, f, r: (
        0.3 * -2 / 0.6 * log_sigmoid(0.6 * (nll(net, f) / n_tokens(f) - 0.2)).mean() + 0.7 * mean(net, r)
    ),
    "undial": lambda net, original, f, r: lowered_distance(net, original, f) + 0.7 * mean(net, r),
    "task_vector": lambda net, original, f, r: mean(net, f),
    "wga": lambda net, original, f, r: -0.3 * weighted(net, f, lambda p: p**0.6) + 0.7 * mean(net, r),
    "satimp": lambda net, original, f, r: (
        -0.3 * weighted(net, f, lambda p: p**1.4 * (1 - p) ** 0.8) + 0.7 * mean(net, r)
    ),
    "ceu": lambda net, original, f, r: distance_without_truth(net, f),
    "pdu": lambda net, original, f, r: 0.3 * squared_margin(net, f) + 0.7 * (mean(net, r) - 0.4),
}


def run(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> tuple[Llama, Llama, Trained]:
    """Return the network after unlearning with a stand-in for training, its original, and what that kept."""
    original = tiny_network()
    net = copy.deepcopy(original)
    trained = Trained(next(iter(loader(PERSONS[6:]))), next(iter(loader(PERSONS[:2]))))
    monkeypatch.setattr(module, "train", trained)
    module.unlearning(net, loader(PERSONS[:2]), loader(PERSONS[6:]), None)
    return net, original, trained


def test_every_method_has_an_expected_loss() -> None:
    assert sorted({*EXPECTED, "altpo", "rmu"}) == METHODS


@pytest.mark.parametrize("method", sorted(EXPECTED))
def test_loss_is_the_published_sum_of_terms(method, use, monkeypatch):
    net, original, trained = run(use(method), monkeypatch)
    if method == "task_vector":
        net = copy.deepcopy(original)
        move(net)  # what was trained is the copy
    expected = EXPECTED[method](net, original, *trained.batches)
    torch.testing.assert_close(trained.loss, expected, rtol=1e-4, atol=1e-5)


def test_task_vector_is_subtracted_by_its_scale(use, monkeypatch):
    net, original, _ = run(use("task_vector"), monkeypatch)
    reinforced = copy.deepcopy(original)
    move(reinforced)
    for own, before, learnt in zip(net.parameters(), original.parameters(), reinforced.parameters(), strict=True):
        torch.testing.assert_close(own, before - 1.5 * (learnt - before))


def test_rmu_turns_forget_states_and_keeps_retain_states(use, monkeypatch):
    module = use("rmu")
    monkeypatch.setattr(module.torch, "rand", lambda n, device: torch.arange(1.0, n + 1))
    net, original, trained = run(module, monkeypatch)
    assert trained.trained == ["blocks.0.down.weight", "blocks.1.down.weight"]

    def states(network: Llama, batch: Batch) -> Tensor:
        seen: list[Tensor] = []
        handle = network.blocks[1].register_forward_hook(lambda module, given, output: seen.append(output))
        logits(network, batch)
        handle.remove()
        return seen[0].detach()

    def distance(left: Tensor, right: Tensor, batch: Batch) -> Tensor:
        used = batch["labels"] != -100
        rows = zip((left - right).square().mean(-1), used, strict=True)
        return torch.stack([of_tokens[kept].mean() for of_tokens, kept in rows]).mean()

    forget, retain = trained.batches
    axis = torch.arange(1.0, 33.0)
    turned = distance(states(net, forget), 3.0 * axis / axis.norm(), forget)
    kept = distance(states(net, retain), states(original, retain), retain)
    torch.testing.assert_close(trained.loss, turned + 0.7 * kept, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("paired", [True, False])
def test_training_warms_up_clips_and_pairs_batches(paired: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    net, rates, norms, sizes = tiny_network(), [], [], []
    trained = list(net.parameters())

    class Recorded(torch.optim.AdamW):
        def step(self, closure: None = None) -> None:  # type: ignore[override]
            rates.append(self.param_groups[0]["lr"])
            norms.append(float(torch.stack([p.grad.norm() for p in trained if p.grad is not None]).norm()))

    def loss(forget: Batch, retain: Batch) -> Tensor:
        sizes.append([len(batch["labels"]) for batch in (forget, retain) if batch])
        return 100 * torch.stack([parameter.sum() for parameter in trained]).sum()

    monkeypatch.setattr(common.torch.optim, "AdamW", Recorded)
    forget, retain = loader(PERSONS[4:], batch_size=1), loader(PERSONS[:4], batch_size=2) if paired else None
    common.train(net, loss, forget, retain, lr=LR, epochs=EPOCHS, weight_decay=0.01)
    expected = [*(LR * k / 4 for k in range(4)), *(LR * (12 - step) / 8 for step in range(4, 12))]
    assert rates == pytest.approx(expected)
    assert norms == pytest.approx([1.0] * 12, rel=1e-3)
    assert sizes == [[1, 1] if paired else [1]] * 12
