"""Write a folder as `save_pretrained` does: a small Llama 3, its tokenizer of some texts, and a chat template.

    python -m benchmarks.text.llama_folder FOLDER TEXTS.json [TEXTS.json ...]

Shared keys and values (4 heads, 2 of keys), an output layer of its own, Llama 3's scaling of rotations, bfloat16. The
weights are random: what such a competition needs is the form, and nothing can be downloaded where it is tried.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedTokenizerFast

VOCABULARY = 1024
SPECIAL = ("<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>")
CHAT = (
    "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message['role'] }}<|end_header_id|>\n\n"
    "{{ message['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
ROTATIONS = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}


def write_folder(folder: Path, texts: Sequence[str], *, width: int = 96, layers: int = 2) -> None:
    """Write the folder. The weights depend on the sizes alone."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    trained.train_from_iterator(texts, trainer)
    untyped: Any = PreTrainedTokenizerFast
    tokenizer = untyped(tokenizer_object=trained, bos_token=SPECIAL[0], eos_token=SPECIAL[1])
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=trained.get_vocab_size(),
        hidden_size=width,
        intermediate_size=344 * width // 128,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        rope_parameters=ROTATIONS,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=1,
    )
    torch.manual_seed(0)
    auto: Any = AutoModelForCausalLM
    auto.from_config(config).to(torch.bfloat16).save_pretrained(folder)


def texts_of(path: Path) -> Iterator[str]:
    """Yield the questions and answers of a file of JSON Lines."""
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line)
        yield from (row["question"], row["answer"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("texts", type=Path, nargs="+")
    found = parser.parse_args()
    write_folder(found.folder, [text for path in found.texts for text in texts_of(path)])


if __name__ == "__main__":
    main()
