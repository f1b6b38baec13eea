"""The GPT-2-like network: causal, unmoved by padding, the same with a cache, and what transformers computes."""

import pytest
import torch

from lethe.evaluation.text import generate_greedily
from lethe.networks.decoder import KeyValueCache
from lethe.networks.language_models import Gpt2, Gpt2Shape
from lethe.training.answer_training import LoraLinear, add_lora, merge_lora

SHAPE = Gpt2Shape(vocabulary_size=40, width=24, layers=2, heads=3, hidden_width=96, context=16)


@pytest.fixture
def network() -> Gpt2:
    torch.manual_seed(0)
    network = Gpt2(SHAPE).eval()
    with torch.no_grad():
        for parameter in network.parameters():  # also biases and norms, that start at 0 and 1
            parameter.add_(0.1 * torch.randn_like(parameter))
    return network


def ids(rows: int, n_tokens: int) -> torch.Tensor:
    return torch.randint(0, 40, (rows, n_tokens), generator=torch.Generator().manual_seed(1))


def test_gpt2_reads_no_later_token(network: Gpt2) -> None:
    changed = ids(2, 9)
    changed[:, 6:] = 0
    with torch.no_grad():
        assert torch.allclose(network(ids(2, 9))[:, :6], network(changed)[:, :6], atol=1e-6)
        assert not torch.allclose(network(ids(2, 9))[:, 6:], network(changed)[:, 6:], atol=1e-3)


@pytest.mark.parametrize("left", [False, True])
def test_gpt2_ignores_padding(network: Gpt2, *, left: bool) -> None:
    tokens, padding = ids(1, 7), torch.zeros(1, 4, dtype=torch.int64)
    real = torch.ones_like(tokens)
    pair = (padding, tokens) if left else (tokens, padding)
    mask = torch.cat((torch.zeros_like(padding), real) if left else (real, torch.zeros_like(padding)), 1)
    padded = network(torch.cat(pair, 1), mask)
    assert torch.allclose(padded[:, 4:] if left else padded[:, :7], network(tokens), atol=1e-5)


def test_gpt2_continues_from_its_cache(network: Gpt2) -> None:
    tokens, mask = ids(2, 8), torch.ones(2, 8, dtype=torch.int64)
    cache = KeyValueCache(layers=2, rows=2, heads=3, capacity=8, like=network.embedding.weight, head_width=8)
    with torch.no_grad():
        states = [network.hidden_states(tokens[:, a:b], mask[:, :b], cache=cache) for a, b in ((0, 4), (4, 5), (5, 8))]
        assert torch.allclose(network.logits(torch.cat(states, 1)), network(tokens, mask), atol=1e-5)


def test_gpt2_generates_its_own_first_choices(network: Gpt2) -> None:
    prompts = [ids(1, 5)[0].tolist(), ids(1, 3)[0].tolist()]
    for prompt, found in zip(prompts, generate_greedily(network, prompts, end_id=-1, max_new_tokens=4), strict=True):
        tokens = list(prompt)
        for _ in range(4):
            tokens.append(int(network(torch.tensor([tokens]))[0, -1].argmax()))
        assert tokens[len(prompt) :] == list(found)


def test_gpt2_equals_transformers(network: Gpt2) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=40, n_embd=24, n_layer=2, n_head=3, n_positions=16)
    oracle = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for (name, tensor), own in zip(oracle.named_parameters(), network.parameters(), strict=True):  # in one order
            tensor.copy_(own.t() if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")) else own)
        assert torch.allclose(network(ids(2, 10)), oracle(input_ids=ids(2, 10)).logits, atol=1e-5)


def test_lora_takes_every_matrix_of_the_blocks(network: Gpt2) -> None:
    names, before = list(network.state_dict()), network(ids(1, 6))
    add_lora(network, rank=2)
    added = [module for module in network.modules() if isinstance(module, LoraLinear)]
    assert len(added) == 4 * SHAPE.layers
    assert torch.allclose(network(ids(1, 6)), before, atol=1e-6)
    with torch.no_grad():
        for module in added:
            module.up.normal_()
    adapted = network(ids(1, 6))
    merge_lora(network)
    assert list(network.state_dict()) == names
    assert torch.allclose(network(ids(1, 6)), adapted, atol=1e-4)
