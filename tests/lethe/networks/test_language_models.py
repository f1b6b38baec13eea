"""Language models: causal, unmoved by padding, the same with a cache, and equal to those of transformers."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from lethe.data.errors import InvalidLanguageModel, InvalidTokenizer
from lethe.networks.decoder import KeyValueCache
from lethe.networks.language_models import Gpt2, Gpt2Shape, Llama, LlamaShape
from lethe.training.answer_training import LoraLinear, add_lora, merge_lora
from lethe.training.pretrained import load_llama, load_pretrained, with_vocabulary
from tests.support.tiny_language import tiny_network

SHAPES = {
    Llama: LlamaShape(vocabulary_size=40, width=24, layers=2, heads=3, hidden_width=32, context=16),
    Gpt2: Gpt2Shape(vocabulary_size=40, width=24, layers=2, heads=3, hidden_width=96, context=16),
}
SHAPE = SHAPES[Llama]
METADATA = {"vocab": "40", "dim": "24", "layers": "2", "heads": "3", "hidden": "32", "context": "16"}


def made(kind: type[Llama] | type[Gpt2]) -> Llama | Gpt2:
    torch.manual_seed(0)
    network = kind(SHAPES[kind]).eval()
    with torch.no_grad():
        for parameter in network.parameters():  # also biases and norms, that start at 0 and 1
            parameter.add_(0.1 * torch.randn_like(parameter))
    return network


@pytest.fixture
def network() -> Llama:
    return made(Llama)


@pytest.fixture(params=SHAPES)
def either(request: pytest.FixtureRequest) -> Llama | Gpt2:
    return made(request.param)


def ids(rows: int, n_tokens: int) -> torch.Tensor:
    return torch.randint(0, 40, (rows, n_tokens), generator=torch.Generator().manual_seed(1))


def test_network_reads_no_later_token(either: Llama | Gpt2) -> None:
    changed = ids(2, 9)
    changed[:, 6:] = 0
    with torch.no_grad():
        assert torch.allclose(either(ids(2, 9))[:, :6], either(changed)[:, :6], atol=1e-6)
        assert not torch.allclose(either(ids(2, 9))[:, 6:], either(changed)[:, 6:], atol=1e-3)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_network_ignores_padding(either: Llama | Gpt2, *, left: bool, grad: bool) -> None:
    tokens, padding = ids(1, 7), torch.zeros(1, 4, dtype=torch.int64)
    real = torch.ones_like(tokens)
    pair = (padding, tokens) if left else (tokens, padding)
    mask = torch.cat((torch.zeros_like(padding), real) if left else (real, torch.zeros_like(padding)), 1)
    with torch.set_grad_enabled(grad):
        padded = either(torch.cat(pair, 1), mask)
        assert torch.allclose(padded[:, 4:] if left else padded[:, :7], either(tokens), atol=1e-5)


def test_network_continues_from_its_cache(either: Llama | Gpt2) -> None:
    tokens, mask = ids(2, 8), torch.ones(2, 8, dtype=torch.int64)
    mask[0, :3] = 0
    cache = KeyValueCache(layers=2, rows=2, heads=3, capacity=8, like=either.embedding.weight, head_width=8)
    with torch.no_grad():
        whole = either(tokens, mask)
        states = [either.hidden_states(tokens[:, a:b], mask[:, :b], cache=cache) for a, b in ((0, 4), (4, 5), (5, 8))]
        again = either.logits(torch.cat(states, 1))
    assert torch.allclose(again[1], whole[1], atol=1e-5)
    assert torch.allclose(again[0, 3:], whole[0, 3:], atol=1e-5)


def test_additions_of_low_rank_take_every_matrix_of_the_blocks_and_merge(either: Llama | Gpt2) -> None:
    names, before = list(either.state_dict()), either(ids(1, 6))
    add_lora(either, rank=2)
    added = [module for module in either.modules() if isinstance(module, LoraLinear)]
    assert len(added) == 4 * 2
    assert torch.allclose(either(ids(1, 6)), before, atol=1e-6)
    trained = [name for name, parameter in either.named_parameters() if parameter.requires_grad]
    assert {name.rpartition(".")[2] for name in trained} == {"up", "down"}
    with torch.no_grad():
        for module in added:
            module.up.normal_()
    adapted = either(ids(1, 6))
    merge_lora(either)
    assert list(either.state_dict()) == names
    assert torch.allclose(either(ids(1, 6)), adapted, atol=1e-4)
    assert all(parameter.requires_grad for parameter in either.parameters())


def test_llama_gives_equal_logits_with_gradients(network: Llama) -> None:
    with torch.no_grad():
        fused = network(ids(3, 8))
    assert torch.allclose(network(ids(3, 8)), fused, atol=1e-5)


def test_llama_refuses_more_than_its_context(network: Llama) -> None:
    with pytest.raises(ValueError, match="17 tokens do not fit the network's context of 16"):
        network(ids(1, 17))


def test_llama_refuses_a_width_without_pairs() -> None:
    with pytest.raises(ValueError, match="width 21 is not a multiple"):
        LlamaShape(10, 21, 1, 3, 8, 8)


def test_llama_file_comes_back(network: Llama, tmp_path: Path) -> None:
    save_file(network.state_dict(), tmp_path / "net.safetensors", metadata=METADATA)
    loaded = load_llama(tmp_path / "net.safetensors")
    assert loaded.shape == SHAPE
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), network.parameters(), strict=True))


@pytest.mark.parametrize(
    ("metadata", "sentence"),
    [
        ({**METADATA, "dim": "12"}, "does not fit the sizes it states"),
        ({**METADATA, "layers": "3"}, "3 tensors differ|tensors differ"),
        ({"vocab": "40"}, "states no whole number for dim, layers, heads, hidden, context"),
    ],
)
def test_llama_file_must_fit_its_sizes(network: Llama, tmp_path: Path, metadata: dict[str, str], sentence: str) -> None:
    save_file(network.state_dict(), tmp_path / "net.safetensors", metadata=metadata)
    with pytest.raises(InvalidLanguageModel, match=sentence):
        load_llama(tmp_path / "net.safetensors")


def test_llama_file_must_be_safetensors(tmp_path: Path) -> None:
    (tmp_path / "net.safetensors").write_bytes(b"no tensors")
    with pytest.raises(InvalidLanguageModel, match=r"net\.safetensors cannot be read"):
        load_llama(tmp_path / "net.safetensors")


def test_a_network_without_a_reader_of_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidLanguageModel, match="'gpt2' starts from no stored weights: allowed are llama and trans"):
        load_pretrained("gpt2", tmp_path / "net.safetensors")


def test_llama_equals_transformers(network: Llama) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=40,
        hidden_size=24,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=3,
        max_position_embeddings=16,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
    )
    oracle = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        oracle.model.embed_tokens.weight.copy_(network.embedding.weight)
        oracle.model.norm.weight.copy_(network.norm.weight)
        for own, theirs in zip(network.blocks, oracle.model.layers, strict=True):
            parts = own.query_key_value.weight.chunk(3)
            attention = theirs.self_attn
            for part, layer in zip(parts, (attention.q_proj, attention.k_proj, attention.v_proj), strict=True):
                layer.weight.copy_(part)
            attention.o_proj.weight.copy_(own.attention_output.weight)
            for part, layer in zip(
                own.gate_and_up.weight.chunk(2), (theirs.mlp.gate_proj, theirs.mlp.up_proj), strict=True
            ):
                layer.weight.copy_(part)
            theirs.mlp.down_proj.weight.copy_(own.down.weight)
            theirs.input_layernorm.weight.copy_(own.attention_norm.weight)
            theirs.post_attention_layernorm.weight.copy_(own.feed_forward_norm.weight)
        expected = oracle(input_ids=ids(2, 10)).logits
        assert torch.allclose(network(ids(2, 10)), expected, atol=1e-5)


def test_vocabulary_of_a_part_gives_the_same_logits(network: Llama) -> None:
    kept = [3, 7, 20, 39]
    small = with_vocabulary(network, kept).eval()
    with torch.no_grad():
        whole = network(torch.tensor([[20, 3, 39]]))
        assert torch.allclose(small(torch.tensor([[2, 0, 3]])), whole[..., kept], atol=1e-6)
    with pytest.raises(InvalidTokenizer, match="token 40 is kept, but the network has 40"):
        with_vocabulary(network, [1, 40])


def test_lora_refuses_no_rank_and_no_layer() -> None:
    with pytest.raises(ValueError, match="rank of LoRA is 0"):
        add_lora(tiny_network(), rank=0)
    with pytest.raises(ValueError, match="no linear layer"):
        add_lora(torch.nn.Embedding(3, 2))


def test_gpt2_equals_transformers() -> None:
    network = made(Gpt2)
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=40, n_embd=24, n_layer=2, n_head=3, n_positions=16)
    oracle = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for (name, tensor), own in zip(oracle.named_parameters(), network.parameters(), strict=True):  # in one order
            tensor.copy_(own.t() if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")) else own)
        assert torch.allclose(network(ids(2, 10)), oracle(input_ids=ids(2, 10)).logits, atol=1e-5)
