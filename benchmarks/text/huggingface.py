"""Tokens per second of losses and generation of a transformers model, beside the usual loop in one run.

    python -m benchmarks.text.huggingface [--answers 96] [--width 384] [--layers 6]

The usual loop: batches of 32 in the data's order, each generated until its longest answer ends. Answers are of mixed
length, and so is what is generated. Figures are CPU seconds of this process, one thread, a random Llama. In
one of two layers and width 32 calls cost more than what they compute.
"""

import argparse
import random
import time
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from lethe.huggingface.answer_scores import pad, score_answers
from lethe.huggingface.generated_text import decode, generate
from lethe.huggingface.model_folder import LanguageModel, load_language_model
from lethe.huggingface.prompts import Encoded
from tests.support.tiny_models import ARCHITECTURES, write_model

Found = TypeVar("Found")
BATCH = 32
NEW_TOKENS = 128
RUNS = 3
ENDS = [0, *range(60, 320, 32)]  # so that answers of a random network end at different lengths, or never


def main() -> None:
    """Print seconds of both sides and their ratio."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--answers", type=int, default=96)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--layers", type=int, default=6)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    sizes = {"hidden_size": chosen.width, "intermediate_size": 2 * chosen.width, "num_hidden_layers": chosen.layers}
    ARCHITECTURES["llama"].update(sizes)
    with TemporaryDirectory() as folder:
        model = load_language_model(write_model(Path(folder) / "model", "llama"))
    answers = made_up(chosen.answers)
    seconds, losses = timed(lambda: score_answers(model, answers).loss)
    usual_s, expected = timed(lambda: usual_losses(model, answers))
    assert np.allclose(losses, expected, atol=1e-4), "both sides must give the same losses"
    report("losses", seconds, usual_s, sum(len(answer.ids) for answer in answers))
    model.network.generation_config.eos_token_id = ENDS
    seconds, texts = timed(lambda: generate(model, answers, max_new_tokens=NEW_TOKENS))
    usual_s, rows = timed(lambda: usual_generation(model, answers))
    usual_texts = [text.strip() for text in decode(model, rows, clean_up=True)]
    assert [text.text for text in texts] == usual_texts, "both sides must give the same texts"
    lengths = sorted(map(len, rows))
    print(f"generated tokens of an answer: quartiles {[lengths[len(rows) * part // 4] for part in (1, 2, 3)]}")
    report("generation", seconds, usual_s, sum(lengths))


def made_up(n: int) -> list[Encoded]:
    """Return answers of 4 to 200 tokens after prompts of 10 to 60."""
    draw = random.Random(0)
    found = []
    for _ in range(n):
        prompt = [draw.randrange(5, 320) for _ in range(draw.randrange(10, 60))]
        answer = [draw.randrange(5, 320) for _ in range(int(4 * 50 ** draw.random()))]
        found.append(Encoded([*prompt, *answer], start=len(prompt), prompt=prompt))
    return found


@torch.inference_mode()
def usual_losses(model: LanguageModel, answers: Sequence[Encoded]) -> list[float]:
    found = []
    for start in range(0, len(answers), BATCH):
        batch = answers[start : start + BATCH]
        ids, mask = pad([answer.ids for answer in batch], model.padding_id)
        logits = model.network(input_ids=ids, attention_mask=mask).logits
        for row, answer in enumerate(batch):
            scored = logits[row, answer.start - 1 : len(answer.ids) - 1]
            found.append(float(cross_entropy(scored, ids[row, answer.start : len(answer.ids)])))
    return found


@torch.inference_mode()
def usual_generation(model: LanguageModel, answers: Sequence[Encoded]) -> list[list[int]]:
    found = []
    for start in range(0, len(answers), BATCH):
        ids, mask = pad([answer.prompt for answer in answers[start : start + BATCH]], model.padding_id, left=True)
        network: Any = model.network  # transformers leaves `generate` untyped
        output = network.generate(
            ids, attention_mask=mask, max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=model.end_id
        )
        found += output[:, ids.shape[1] :].tolist()
    return [list(takewhile(lambda token: token not in ENDS, row)) for row in found]


def timed(work: Callable[[], Found]) -> tuple[float, Found]:
    """Return the least time of some runs, and what the last returned: a first call also starts what all use."""
    seconds = []
    for _ in range(RUNS):
        started = time.process_time()
        found = work()
        seconds.append(time.process_time() - started)
    return min(seconds), found


def report(what: str, ours: float, usual: float, n_tokens: int) -> None:
    print(f"{what}: {ours:.2f} s ({n_tokens / ours:,.0f} tokens/s), usual loop {usual:.2f} s, ratio {usual / ours:.2f}")


if __name__ == "__main__":
    main()
