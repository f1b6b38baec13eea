"""Every text method on invented persons: it stands alone, changes the network, forgets, and has the published loss."""

import ast
import copy
import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from lethe.evaluation.text import answer_losses
from lethe.methods import text
from lethe.methods.catalogue import method_source
from lethe.methods.text import common
from lethe.networks.decoder import CausalNetwork
from lethe.networks.language_models import Llama
from lethe.networks.transformers_network import TransformersNetwork
from tests.support.tiny_language import (
    CONTEXT,
    PERSONS,
    REFUSAL,
    WordTokenizer,
    answer_loader,
    get_tokens,
    learnt_network,
)

FOLDER = Path(text.__file__).parent
METHODS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in {"__init__", "common"})
FORGET, RETAIN = PERSONS[6:], PERSONS[:6]
WITHOUT_RETAIN = {"ceu", "ga", "task_vector", "undial"}
LEARNING_RATE = 3e-3
FASTER = {"idk": 1e-2, "rmu": 5e-2, "satimp": 3e-2}  # few words to learn; few layers to turn; small weights


def method_module(method: str) -> ModuleType:
    return import_module(f"lethe.methods.text.{method}")


def loader(persons: tuple, *, refusals: bool = False) -> DataLoader:
    answers = [get_tokens(person) for person in persons]
    other = [get_tokens(person, REFUSAL) for person in persons] if refusals else []
    return answer_loader(answers, other, batch_size=2)


@pytest.fixture(scope="module")
def learnt() -> Llama:
    return learnt_network()


def unlearnt(method: str, learnt: CausalNetwork, monkeypatch: pytest.MonkeyPatch, *, epochs: int = 12) -> CausalNetwork:
    module, network = method_module(method), copy.deepcopy(learnt)
    monkeypatch.setattr(module, "LR", FASTER.get(method, LEARNING_RATE))
    monkeypatch.setattr(module, "EPOCHS", epochs)
    torch.manual_seed(0)
    module.unlearning(network, loader(RETAIN), loader(FORGET, refusals=True), loader(RETAIN))
    return network


def probabilities(network: CausalNetwork, persons: tuple) -> np.ndarray:
    return np.exp(-answer_losses(network, [get_tokens(person) for person in persons], padding_id=1))


def require_same_network(before: torch.nn.Module, after: torch.nn.Module) -> None:
    own, found = before.state_dict(), after.state_dict()
    assert {name: (t.shape, t.dtype) for name, t in found.items()} == {n: (t.shape, t.dtype) for n, t in own.items()}
    assert all(torch.isfinite(tensor).all() for tensor in found.values())


def test_all_methods_are_there() -> None:
    expected = "altpo ceu dpo ga graddiff idk kl_min npo pdu rmu satimp simnpo task_vector undial wga"
    assert expected.split() == METHODS


@pytest.mark.parametrize(("method", "rank"), [*((method, 0) for method in METHODS), ("npo", 2), ("rmu", 2)])
def test_method_takes_a_gpt2_of_transformers(method: str, rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "LORA_RANK", rank)
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": CONTEXT, "bos_token_id": 0, "eos_token_id": 1}
    before = TransformersNetwork({"model_type": "gpt2", "vocab_size": WordTokenizer().vocabulary_size, **sizes}).eval()
    after = unlearnt(method, before, monkeypatch, epochs=2)
    require_same_network(before, after)
    changed = [name for name, value in after.state_dict().items() if not torch.equal(value, before.state_dict()[name])]
    assert "model.transformer.h.1.mlp.c_proj.weight" in changed
    assert not after.training


@pytest.mark.parametrize("method", METHODS)
def test_method_forgets_and_returns_a_whole_network(method, learnt, monkeypatch):
    network = unlearnt(method, learnt, monkeypatch)
    require_same_network(learnt, network)
    assert not network.training
    assert all(parameter.requires_grad for parameter in network.parameters())
    assert probabilities(learnt, FORGET).min() > 0.8
    assert probabilities(network, FORGET).mean() < 0.75 * probabilities(learnt, FORGET).mean()


@pytest.mark.parametrize("method", sorted(set(METHODS) - WITHOUT_RETAIN - {"rmu"}))
def test_method_keeps_more_than_ascent(method: str, learnt: Llama, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = probabilities(unlearnt(method, learnt, monkeypatch), RETAIN).mean()
    assert kept > probabilities(unlearnt("ga", learnt, monkeypatch), RETAIN).mean()


@pytest.mark.parametrize("method", METHODS)
def test_method_imports_torch_and_the_standard_library_alone(method: str) -> None:
    tree = ast.parse(method_source(method))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= {"torch", *sys.stdlib_module_names}


@pytest.mark.parametrize("method", METHODS)
def test_method_describes_itself(method: str) -> None:
    module = method_module(method)
    doc = inspect.getdoc(module) or ""
    for section in ("Pseudo-code", "Source", "Budget", "Deterministic", "Differences", "Needs"):
        assert re.search(rf"^{section}:", doc, re.MULTILINE), section
    ranges = re.findall(
        r"^(\w+) = .*# lethe: tune (\w+) = (?:log|uniform|int|choice)\(", inspect.getsource(module), re.M
    )
    assert {"LR", "EPOCHS"} <= {name for name, _ in ranges}
    assert all(name == tuned for name, tuned in ranges)


@pytest.mark.parametrize("method", ["idk", "dpo"])
def test_method_says_that_refusals_are_missing(method: str, learnt: Llama) -> None:
    with pytest.raises(KeyError, match="forget batches hold refusals"):
        method_module(method).unlearning(copy.deepcopy(learnt), loader(RETAIN), loader(FORGET), loader(RETAIN))


def test_rmu_trains_chosen_layers_alone(learnt: Llama, monkeypatch: pytest.MonkeyPatch) -> None:
    network = unlearnt("rmu", learnt, monkeypatch, epochs=2)
    changed = {
        name for name, tensor in network.state_dict().items() if not torch.equal(tensor, learnt.state_dict()[name])
    }
    assert changed == {"blocks.0.down.weight", "blocks.1.down.weight"}


class Given(torch.nn.Module):
    """A network that returns the logits it is given, whatever it reads."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(logits)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.logits


def test_losses_equal_the_published_ones() -> None:
    path = Path(__file__).parents[3] / "golden" / "lab" / "method_losses.npz"
    if not path.exists():
        pytest.skip("tests/golden/lab has no method_losses.npz")
    with np.load(path) as golden:
        own, reference, labels = (torch.from_numpy(golden[f"in_lm_{n}"]) for n in ("logits", "reference", "labels"))
        expected = {name: golden[f"out_{name}"] for name in ("npo_beta0_1", "dpo_beta0_1", "simnpo_beta4_5")}
        expected |= {name: golden[f"out_{name}"] for name in ("batch_nll", "retain_kl")}
    batch = {"input_ids": labels, "attention_mask": torch.ones_like(labels), "labels": labels}
    npo, dpo, simnpo, kl_min = (method_module(name) for name in ("npo", "dpo", "simnpo", "kl_min"))
    nll, original = (npo.sequence_nll(Given(logits), batch) for logits in (own, reference))
    # the published set prefers another sequence's labels to the sequence's own
    other = {**batch, "labels": labels.roll(1, dims=0)}
    preferred = [dpo.sequence_nll(Given(logits), other) for logits in (own, reference)]
    found = {
        "batch_nll": nll,
        "npo_beta0_1": npo.npo_loss(nll, original),
        "dpo_beta0_1": dpo.dpo_loss(preferred[1] - preferred[0], original - nll),
        "simnpo_beta4_5": simnpo.simnpo_loss(nll, simnpo.n_tokens(batch)),
        "retain_kl": kl_min.retain_kl(own, reference),
    }
    for name, loss in found.items():
        assert loss.detach().numpy() == pytest.approx(expected[name], rel=2e-5, abs=2e-6), name


def test_dpo_without_a_gain_is_log_two() -> None:
    zero = torch.zeros(3)
    assert float(method_module("dpo").dpo_loss(zero, zero)) == pytest.approx(2 / 0.1 * np.log(2))
