import json

import gguf
import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig

from lethe.huggingface.answer_scores import score_answers
from lethe.huggingface.generated_text import generate, generation_notes
from lethe.huggingface.model_folder import load_language_model
from lethe.huggingface.prompts import PromptFormat, encode_answer
from lethe.huggingface.results import InvalidModelFolder
from tests.support.tiny_models import ARCHITECTURES, tokenizer, write_model

PAIRS = [("Who wrote the book?", "Mara Quill wrote the book."), ("Where was she born?", "In Lagos.")]


def answers(model, **settings):
    prompts = PromptFormat.of(model, **settings)
    return [encode_answer(model, prompts, *pair) for pair in PAIRS]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_gives_the_losses_and_texts_of_transformers(tmp_path, architecture):
    model = load_language_model(write_model(tmp_path / "model", architecture))
    encoded = answers(model)
    found = score_answers(model, encoded)
    for row, answer in enumerate(encoded):
        mask = torch.tensor([[int(token != model.padding_id) for token in answer.ids]])
        with torch.no_grad():
            logits = model.network(input_ids=torch.tensor([answer.ids]), attention_mask=mask).logits[0]
        logs = torch.log_softmax(logits, -1)
        expected = [-float(logs[i - 1, answer.ids[i]]) for i in range(answer.start, len(answer.ids))]
        assert found.loss[row] == pytest.approx(np.mean(expected), abs=1e-5)
        assert found.log_probability[row] == pytest.approx(-np.array(expected[:-1]), abs=1e-5)
    together = [text.text for text in generate(model, encoded, max_new_tokens=70)]
    alone = [generate(model, [answer], max_new_tokens=70)[0].text for answer in encoded]
    assert together == alone
    assert generation_notes(model, encoded) == []


def test_shards_and_half_precision_are_read(tmp_path):
    folder = write_model(tmp_path / "model", "llama", dtype=torch.bfloat16, max_shard_size="40KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    model = load_language_model(folder)
    assert model.network.dtype == torch.bfloat16
    assert np.isfinite(score_answers(model, answers(model)).loss).all()
    assert load_language_model(folder, dtype="float32").network.dtype == torch.float32


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # peft reads it
def test_adapter_is_applied_to_its_base(tmp_path):
    base = write_model(tmp_path / "base", "llama")
    network = get_peft_model(AutoModelForCausalLM.from_pretrained(base), LoraConfig(r=2, target_modules=["q_proj"]))
    for name, parameter in network.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=1.0)
    network.save_pretrained(tmp_path / "adapter")
    plain, adapted = (load_language_model(tmp_path / name) for name in ("base", "adapter"))
    merged = network.merge_and_unload()
    encoded = answers(plain)
    assert not np.allclose(score_answers(plain, encoded).loss, score_answers(adapted, encoded).loss)
    query = "model.layers.0.self_attn.q_proj.weight"
    assert torch.equal(adapted.network.state_dict()[query], merged.state_dict()[query])


def test_adapter_without_its_base_is_refused(tmp_path):
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "someone/model"}))
    with pytest.raises(InvalidModelFolder, match=r"someone/model.*nothing is downloaded"):
        load_language_model(folder)


@pytest.mark.parametrize(
    ("files", "message"), [(["a.gguf"], "cannot be loaded"), (["a.gguf", "b.gguf"], "a.gguf, b.gguf; keep one")]
)
def test_gguf_files_that_cannot_be_read_are_named(tmp_path, files, message):
    for name in files:
        (tmp_path / name).write_bytes(b"GGUF or not" * 9)
    with pytest.raises(InvalidModelFolder, match=message):
        load_language_model(tmp_path)


def test_gguf_file_is_read_as_plain_weights_that_can_be_saved(tmp_path):
    folder = write_gguf(tmp_path / "gguf")
    model = load_language_model(folder)
    model.network.save_pretrained(tmp_path / "saved")
    model.tokenizer.save_pretrained(tmp_path / "saved")
    found = load_language_model(tmp_path / "saved")
    ids = torch.tensor([model.tokenizer("Who wrote the book?")["input_ids"]])
    assert torch.equal(found.network(ids).logits, model.network(ids).logits)
    assert found.tokenizer("Who wrote the book?")["input_ids"] == ids[0].tolist()


def write_gguf(folder):
    folder.mkdir()
    words = json.loads(tokenizer().backend_tokenizer.to_str())["model"]
    writer = gguf.GGUFWriter(folder / "model.gguf", "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_dimension_count(8)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(320)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(sorted(words["vocab"], key=words["vocab"].get))
    writer.add_token_types([3] * 5 + [1] * (len(words["vocab"]) - 5))
    writer.add_token_merges([" ".join(pair) for pair in words["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(0)
    shapes = {"attn_q": (32, 32), "attn_k": (16, 32), "attn_v": (16, 32), "attn_output": (32, 32)}
    shapes |= {"ffn_gate": (64, 32), "ffn_up": (64, 32), "ffn_down": (32, 64), "attn_norm": (32,), "ffn_norm": (32,)}
    drawn = np.random.default_rng(0)
    named = {f"blk.0.{name}": shape for name, shape in shapes.items()} | {"output_norm": (32,)}
    for name, shape in ({"token_embd": (len(words["vocab"]), 32)} | named).items():
        writer.add_tensor(f"{name}.weight", drawn.normal(size=shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder


CODE = {"AutoModelForCausalLM": "modeling_own.Model", "AutoConfig": "modeling_own.Config"}
QUANTISED = [
    (
        {"quantization_config": {"quant_method": method}},
        rf"are quantised \({method}\).*allowed are plain ones in float32",
    )
    for method in ("fp8", "gptq", "bitsandbytes")
]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"auto_map": CODE}, "auto_map"),
        ({"hidden_size": 16}, r"\.weight of .* has the shape .*; its config\.json asks for \("),
        ({"num_hidden_layers": 3}, r"lacks \d+ tensors that its config\.json asks for, the first model\.layers\.2\."),
        ({"dtype": "float8_e4m3fn"}, "are of type float8_e4m3fn; allowed are float32, bfloat16"),
        *QUANTISED,
    ],
)
def test_configuration_that_is_not_taken_is_named_and_no_code_runs(tmp_path, change, message):
    folder = write_model(tmp_path / "model", "llama")
    (folder / "modeling_own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    if "dtype" in change:
        weights = load_file(folder / "model.safetensors")
        eight = {name: weight.to(torch.float8_e4m3fn) for name, weight in weights.items()}
        save_file(eight, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(InvalidModelFolder, match=message):
        load_language_model(folder)
    assert not (tmp_path / "ran").exists()


def test_damaged_weights_and_a_missing_configuration_are_named(tmp_path):
    folder = write_model(tmp_path / "model", "llama")
    (folder / "model.safetensors").write_bytes(b"abc")
    with pytest.raises(InvalidModelFolder, match="cannot be loaded"):
        load_language_model(folder)
    (folder / "config.json").unlink()
    with pytest.raises(InvalidModelFolder, match=r"holds no config\.json; expected is a folder that"):
        load_language_model(folder)


def test_a_tokenizer_of_another_model_is_named(tmp_path):
    folder = write_model(tmp_path / "model", "llama")
    shapes = {"vocab_size": 100, "pad_token_id": 0}
    AutoModelForCausalLM.from_config(
        LlamaConfig(**shapes, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2)
    ).save_pretrained(folder)
    with pytest.raises(InvalidModelFolder, match=r"has 3\d\d tokens, its model 100"):
        load_language_model(folder)


def test_beams_do_not_apply_and_are_named(tmp_path):
    folder = write_model(tmp_path / "model", "llama")
    model = load_language_model(folder)
    greedy = [text.text for text in generate(model, answers(model), max_new_tokens=12)]
    model.network.generation_config.num_beams = 4
    assert [text.text for text in generate(model, answers(model), max_new_tokens=12)] == greedy
    assert generation_notes(model, answers(model)) == [
        "generation_config.json sets num_beams = 4, which did not apply: it is greedy"
    ]


def test_missing_folder_and_unknown_dtype_are_named(tmp_path):
    with pytest.raises(InvalidModelFolder, match="is not a folder"):
        load_language_model(tmp_path / "nowhere")
    with pytest.raises(InvalidModelFolder, match="'int8' is not known; allowed are auto"):
        load_language_model(tmp_path, dtype="int8")


def test_advice_is_about_what_lies_in_the_folder(tmp_path):
    folder = write_model(tmp_path / "model", "llama")
    weights = folder / "model.safetensors"
    with pytest.raises(InvalidModelFolder, match="give the folder that it lies in"):
        load_language_model(weights)
    weights.unlink()
    with pytest.raises(InvalidModelFolder, match=r"no weights in safetensors; expected are files that"):
        load_language_model(folder)
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(InvalidModelFolder, match=r"pytorch_model\.bin may run code"):
        load_language_model(folder)
    (folder / "pytorch_model.bin").unlink()
    (folder / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(InvalidModelFolder, match=r"model\.gguf is read only where no config\.json lies beside it"):
        load_language_model(folder)
