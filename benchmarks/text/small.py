"""TOFU's figure at the smallest size that shows it: forget quality and model utility over epochs, per method.

    LETHE_TEST_DATA=FOLDER python -m benchmarks.text.small [--authors 16] [--forget 4] [--cache FOLDER] [--json FILE]

FOLDER holds tofu.tar.xz. A network of 0.5 million weights learns the answers about some invented authors from scratch;
two networks learn all but the last authors. Every method then forgets these in 1, 3 and 5 epochs. Expected shape
(Maini et al. 2024, figures 3 and 4): the original is distinguished from retraining (p < 1e-3), two retrainings are not
(p > 0.5); ascent raises p and destroys utility; methods that use the retain set keep more of it; a network that never
learnt anything has no utility. Without pretraining there are no real authors and no facts about the world: utility is
the harmonic mean of the retain set's three parts.
"""

import argparse
import copy
import json
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from benchmarks.text.data_folder import data_folder
from lethe.data.answer_batches import AnswerDataset, answer_loader, tokenize_answer
from lethe.data.question_answers import QuestionAnswer, read_question_answers, read_refusals
from lethe.data.tokenizers import Tokenizer, load_tokenizer
from lethe.evaluation.text import QuestionSet, question_arrays, tokenize_questions
from lethe.metrics.text.harmonic_mean import harmonic_mean
from lethe.metrics.text.kolmogorov_smirnov import ks_p_value, log10_p
from lethe.metrics.text.model_utility import utility_parts
from lethe.metrics.text.truth_ratio import truth_ratios
from lethe.networks.llama import Llama, LlamaShape
from lethe.training.causal_lm import FineTuning, fine_tune

QUESTIONS_PER_AUTHOR = 20
MEASURED_RETAIN = 60  # questions of the retain set whose utility is measured
MAX_NEW_TOKENS = 60
CONTEXT = 256
VOCABULARY = 1024
TRAINING = FineTuning(epochs=14, batch_size=16, learning_rate=3e-3, warm_up=0.05)
EPOCHS = (1, 3, 5)
# of the order of a third to a tenth of the training rate; the published 1e-5 is for networks a thousand times larger
LEARNING_RATES = {
    "ga": 5e-4,
    "graddiff": 5e-4,
    "kl_min": 5e-4,
    "idk": 1e-3,
    "npo": 1e-3,
    "simnpo": 1e-3,
    "dpo": 1e-3,
    "rmu": 5e-3,
    "undial": 1e-3,
    "task_vector": 1e-3,
}


@dataclass(frozen=True)
class Task:
    """The questions of a run, as tokens."""

    tokenizer: Tokenizer
    forget: QuestionSet
    retain: QuestionSet
    measured: QuestionSet
    refusals: tuple[str, ...]


def main() -> None:
    """Train, forget and print one line per method and number of epochs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--authors", type=int, default=16, choices=range(6, 41), metavar="6..40")
    parser.add_argument("--forget", type=int, default=4, choices=range(1, 6), metavar="1..5")
    parser.add_argument("--methods", nargs="*", default=list(LEARNING_RATES), choices=list(LEARNING_RATES))
    parser.add_argument("--cache", type=Path, help="folder where trained networks are kept")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    started = time.process_time()
    with tempfile.TemporaryDirectory() as scratch:
        task = load_task(data_folder(), Path(scratch), arguments.authors, arguments.forget)
    cache = arguments.cache or Path(tempfile.mkdtemp())
    cache.mkdir(parents=True, exist_ok=True)
    everything = (*task.retain.answers, *task.forget.answers)
    label = f"{arguments.authors}-{arguments.forget}"
    original = trained(task, everything, 0, cache / f"original-{label}.safetensors")
    retrained = [
        trained(task, task.retain.answers, seed, cache / f"retrained-{label}-{seed}.safetensors") for seed in (1, 2)
    ]
    print(f"training: {time.process_time() - started:.0f} s of CPU")
    print(f"{'method':12} {'epochs':>6} {'log10 p':>8} {'utility':>8} {'P retain':>9} {'P forget':>9} {'RL forget':>9}")
    reference = forget_ratios(task, retrained[0])
    rows = [show("original", 0, task, original, reference), show("retrained", 0, task, retrained[1], reference)]
    rows.append(show("untrained", 0, task, new_network(task, seed=9), reference))
    for method in arguments.methods:
        rows += [show(method, n, task, network, reference) for n, network in forgotten(method, task, original)]
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))
    print(f"all: {time.process_time() - started:.0f} s of CPU")


def load_task(folder: Path, scratch: Path, n_authors: int, n_forget: int) -> Task:
    """Return the first retained authors and the last forgotten ones, with a tokenizer trained on their text."""
    with tarfile.open(folder / "tofu.tar.xz") as archive:
        archive.extractall(scratch, filter="data")
    kept = read_question_answers(next(scratch.rglob("retain_perturbed.json")))
    gone = read_question_answers(next(scratch.rglob("forget10_perturbed.json")))
    refusals = read_refusals(next(scratch.rglob("idontknow.jsonl")))
    forget = gone[-n_forget * QUESTIONS_PER_AUTHOR :]
    retain = (kept + gone)[: (n_authors - n_forget) * QUESTIONS_PER_AUTHOR]
    tokenizer = trained_tokenizer([*retain, *forget], refusals, scratch / "tokenizer.json")
    measured = retain[:: max(1, len(retain) // MEASURED_RETAIN)]

    def tokens(name: str, questions: Sequence[QuestionAnswer]) -> QuestionSet:
        return tokenize_questions(name, questions, tokenizer, context=CONTEXT)

    return Task(
        tokenizer, tokens("forget", forget), tokens("retain", retain), tokens("retain", measured), tuple(refusals)
    )


def trained_tokenizer(questions: Sequence[QuestionAnswer], refusals: Sequence[str], path: Path) -> Tokenizer:
    """Return a byte-level BPE tokenizer trained on the texts of the task."""
    library: Any = import_module("tokenizers")
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    alphabet = library.pre_tokenizers.ByteLevel.alphabet()
    trainer = library.trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    texts = [
        text for one in questions for text in (one.question, one.answer, one.paraphrased_answer, *one.wrong_answers)
    ]
    tokenizer.train_from_iterator([*texts, *refusals], trainer)
    tokenizer.save(str(path))
    return load_tokenizer(path)


def new_network(task: Task, *, seed: int) -> Llama:
    """Return the network of this benchmark as it is before training."""
    torch.manual_seed(seed)
    return Llama(LlamaShape(task.tokenizer.vocabulary_size, 128, 2, 4, 344, CONTEXT))


def trained(task: Task, answers: Sequence[Any], seed: int, kept: Path) -> Llama:
    """Return a network that has learnt the answers, from `kept` if it was trained before."""
    network = new_network(task, seed=seed)
    if kept.exists():
        network.load_state_dict(load_file(kept))
    else:
        started = time.process_time()
        fine_tune(network, answers, TRAINING, seed=seed, padding_id=task.tokenizer.end_id)
        seconds = time.process_time() - started
        n_tokens = TRAINING.epochs * sum(len(answer.tokens) for answer in answers)
        print(f"{kept.stem}: {seconds:.0f} s of CPU, {n_tokens / seconds:.0f} tokens/s", flush=True)
        save_file(network.state_dict(), kept)
    return network.eval()


def forgotten(method: str, task: Task, original: Llama) -> Iterator[tuple[int, Llama]]:
    """Yield the number of epochs and the network after it, each from the original with the same seed."""
    module: Any = import_module(f"lethe.methods.text.{method}")
    module.LR = LEARNING_RATES[method]
    padding_id = task.tokenizer.end_id
    refusals = [
        tokenize_answer(task.tokenizer, one.question, task.refusals[i % len(task.refusals)], context=CONTEXT)
        for i, one in enumerate(task.forget.questions)
    ]
    for n_epochs in EPOCHS:
        module.EPOCHS = n_epochs
        torch.manual_seed(0)
        forget = answer_loader(
            AnswerDataset(task.forget.answers, refusals), batch_size=16, padding_id=padding_id, seed=0
        )
        retain = answer_loader(AnswerDataset(task.retain.answers), batch_size=16, padding_id=padding_id, seed=1)
        network = copy.deepcopy(original)
        module.unlearning(network, retain, forget, retain)
        yield n_epochs, network


def forget_ratios(task: Task, network: Llama) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the truth ratios on the forget set."""
    arrays, _ = question_arrays(network, task.forget, task.tokenizer, max_new_tokens=1)
    return truth_ratios(arrays["forget_paraphrased_loss"], arrays["forget_wrong_loss"])


def show(
    name: str, epochs: int, task: Task, network: Llama, reference: np.ndarray[Any, np.dtype[np.float64]]
) -> dict[str, Any]:
    """Print and return the figures of one network."""
    forget, _ = question_arrays(network, task.forget, task.tokenizer, max_new_tokens=MAX_NEW_TOKENS)
    retain, _ = question_arrays(network, task.measured, task.tokenizer, max_new_tokens=MAX_NEW_TOKENS)
    parts = utility_parts(retain, "retain")
    ratios = truth_ratios(forget["forget_paraphrased_loss"], forget["forget_wrong_loss"])
    row = {
        "method": name,
        "epochs": epochs,
        "log10_p": log10_p(ks_p_value(ratios, reference)),
        "utility": harmonic_mean(parts.values()),
        **parts,
        "forget_probability": float(np.exp(-forget["forget_answer_loss"]).mean()),
        "forget_rouge": float(forget["forget_rouge_recall"].mean()),
    }
    print(
        f"{name:12} {epochs:6} {row['log10_p']:8.2f} {row['utility']:8.3f} {row['retain_probability']:9.3f} "
        f"{row['forget_probability']:9.3f} {row['forget_rouge']:9.3f}",
        flush=True,
    )
    return row


if __name__ == "__main__":
    main()
