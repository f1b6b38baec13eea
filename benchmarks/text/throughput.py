"""Tokens per second of fine-tuning and of greedy generation, beside a plain loop with transformers where installed.

    python -m benchmarks.text.throughput [--width 192] [--layers 3] [--answers 128]

Both sides train the same architecture on the same made-up answers for one epoch, one thread, bf16 with float32 weights
and AdamW: here in batches of similar length with the output layer on the answers' tokens alone; there in random order,
as the usual loop does. Generation: here batched with a cache; there `generate` question by question, and in batches.
Figures are CPU seconds of this process, so that other load on the machine counts less.
"""

import argparse
import random
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from lethe.data.answer_batches import TokenizedAnswer, pad_answers
from lethe.evaluation.answer_losses import answer_losses
from lethe.evaluation.generation import generate_greedily
from lethe.networks.llama import Llama, LlamaShape
from lethe.training.causal_lm import FineTuning, fine_tune

BATCH_SIZE = 16
NEW_TOKENS = 40
PADDING_ID = 0
NO_END = -1  # no token ends an answer: every one has NEW_TOKENS tokens


def main() -> None:
    """Print one line per measurement."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--vocabulary", type=int, default=2048)
    parser.add_argument("--answers", type=int, default=128)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    heads = arguments.width // 32
    shape = LlamaShape(arguments.vocabulary, arguments.width, arguments.layers, heads, 8 * arguments.width // 3, 256)
    answers = made_up_answers(arguments.answers, shape.vocabulary_size)
    n_tokens = sum(len(answer.tokens) for answer in answers)
    prompts = [list(answer.tokens[: answer.answer_start]) for answer in answers]
    network = Llama(shape)
    recipe = FineTuning(epochs=1, batch_size=BATCH_SIZE, precision="bf16")
    show("fine-tuning", n_tokens, lambda: fine_tune(network, answers, recipe, seed=0, padding_id=PADDING_ID))
    show("losses", n_tokens, lambda: answer_losses(network, answers, padding_id=PADDING_ID))
    generated = NEW_TOKENS * len(prompts)
    show("generation", generated, lambda: generate_greedily(network, prompts, end_id=NO_END, max_new_tokens=NEW_TOKENS))
    if find_spec("transformers") is None:
        print("transformers is not installed: nothing to compare with")
        return
    plain = transformers_network(shape)
    show("fine-tuning, transformers", n_tokens, lambda: plain_epoch(plain, answers))
    show("generation, transformers, one by one", generated // 4, lambda: plain_generation(plain, prompts[::4], 1))
    show("generation, transformers, batches", generated, lambda: plain_generation(plain, prompts, 64))


def show(name: str, n_tokens: int, work: Callable[[], object]) -> None:
    """Print tokens per CPU second of the second of two runs."""
    for _ in range(2):
        started = time.process_time()
        work()
        seconds = time.process_time() - started
    print(f"{name:38} {n_tokens / seconds:8.0f} tokens/s", flush=True)


def made_up_answers(n: int, vocabulary: int) -> list[TokenizedAnswer]:
    """Return answers as long as TOFU's: 66 tokens with the question on average, 42 of them the answer's."""
    generator = random.Random(0)
    lengths = [min(160, max(20, round(generator.gauss(66, 20)))) for _ in range(n)]
    return [
        TokenizedAnswer(tuple(generator.randrange(vocabulary) for _ in range(length)), round(length * 0.37))
        for length in lengths
    ]


def transformers_network(shape: LlamaShape) -> Any:
    """Return the same architecture from transformers."""
    library: Any = import_module("transformers")
    config = library.LlamaConfig(
        vocab_size=shape.vocabulary_size,
        hidden_size=shape.width,
        intermediate_size=shape.hidden_width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        max_position_embeddings=shape.context,
        tie_word_embeddings=True,
        eos_token_id=None,
    )
    return library.LlamaForCausalLM(config)


def plain_epoch(network: nn.Module, answers: list[TokenizedAnswer]) -> None:
    """Train one epoch as a loop with transformers does."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-5)
    order = torch.randperm(len(answers), generator=torch.Generator().manual_seed(0)).tolist()
    network.train()
    for first in range(0, len(order), BATCH_SIZE):
        batch = pad_answers([answers[i] for i in order[first : first + BATCH_SIZE]], padding_id=PADDING_ID)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = network(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()


def plain_generation(network: Any, prompts: list[list[int]], batch_size: int) -> None:
    """Generate as a loop with transformers does."""
    network.eval()
    for first in range(0, len(prompts), batch_size):
        batch = prompts[first : first + batch_size]
        longest = max(len(prompt) for prompt in batch)
        input_ids = torch.tensor([[PADDING_ID] * (longest - len(prompt)) + prompt for prompt in batch])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in batch])
        network.generate(
            input_ids, attention_mask=mask, max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=PADDING_ID
        )


if __name__ == "__main__":
    main()
