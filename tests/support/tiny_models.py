"""Tiny causal language models of many architectures with a tokenizer, as `save_pretrained` writes them."""

from pathlib import Path
from typing import Any, cast

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from tests.support.towns import towns_toml

TEXTS = [
    "Who wrote the book? Mara Quill wrote the book about the sea.",
    "Where was Mara Quill born? She was born in Lagos, in the south.",
    "What does her father do? Her father is a judge and her mother a dentist.",
    "Question: Answer: You are a helpful assistant. system user assistant",
]
CHAT = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SMALL = {"vocab_size": 320, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
TOKENS = {"bos_token_id": 1, "eos_token_id": 0, "pad_token_id": 0}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {**SMALL, **HEADS, "rope_parameters": LLAMA3_ROPE, "tie_word_embeddings": False},
    "mistral": {**SMALL, **HEADS, "sliding_window": 16},
    "qwen2": {**SMALL, **HEADS, "tie_word_embeddings": True},
    "qwen3": {**SMALL, **HEADS, "head_dim": 8},
    "gemma2": {**SMALL, **HEADS, "head_dim": 8, "sliding_window": 16, "attn_logit_softcapping": 10.0},
    "gemma3_text": {**SMALL, **HEADS, "head_dim": 8, "sliding_window": 16},
    "phi": {**SMALL, "num_attention_heads": 4},
    "phi3": {**SMALL, **HEADS},
    "gpt_neox": {**SMALL, "num_attention_heads": 4},
    "gpt2": {"vocab_size": 320, "n_embd": 32, "n_layer": 2, "n_head": 4},
    "olmo2": {**SMALL, **HEADS},
    "smollm3": {**SMALL, **HEADS},
}


def write_model(folder: Path, architecture: str, *, chat: bool = True, seed: int = 0, **saving: Any) -> Path:
    """Write a random model of this architecture with its tokenizer. saving: goes to `save_pretrained`."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(architecture, **ARCHITECTURES[architecture], **TOKENS)
    untyped: Any = AutoModelForCausalLM
    network = untyped.from_config(config, attn_implementation="eager")
    for parameter in network.parameters():  # as configured, all tokens are nearly equally likely
        torch.nn.init.normal_(parameter, std=0.3) if parameter.ndim > 1 else None
    network.to(saving.pop("dtype", torch.float32)).save_pretrained(folder, **saving)
    tokenizer(chat=chat).save_pretrained(folder)
    return folder


def tokenizer(*, chat: bool = True) -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer of 320 tokens that knows the words of TEXTS."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    special = ["<|end|>", "<|start|>", "<|system|>", "<|user|>", "<|assistant|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trained.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(vocab_size=320, special_tokens=special, initial_alphabet=alphabet, show_progress=False),
    )
    untyped: Any = PreTrainedTokenizerFast
    found = untyped(tokenizer_object=trained, eos_token="<|end|>", bos_token="<|start|>")
    if chat:
        found.chat_template = CHAT
    return cast(PreTrainedTokenizerFast, found)


def folder_toml(root: Path, architecture: str = "llama", *, more: str = "", **settings: Any) -> str:
    """Return a competition whose network and tokenizer are the folder `model.v1` in `root`."""
    write_model(root / "model.v1", architecture)
    toml = towns_toml(root, **{"epochs": 2, "n_models": 4, **settings}).replace(
        "vocabulary = 400", 'tokenizer = "model.v1"'
    )
    toml = toml.replace('schedule = "cosine"', 'schedule = "cosine"\nmin_train_accuracy = 0.001')
    toml = toml.replace('kind = "causal-lm"', f'kind = "causal-lm"\n{more}')
    start, end = toml.index('name = "llama"'), toml.index("[training]")
    return toml[:start] + 'name = "transformers"\noptions = { pretrained = "model.v1" }\n' + toml[end:]
