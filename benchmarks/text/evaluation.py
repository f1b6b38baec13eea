"""One language model's evaluation by stage, as CPU seconds and as shares of one run.

    LETHE_TEST_DATA=FOLDER python -m benchmarks.text.evaluation [--file FILE] [--epochs 14] [--repeats 3]

FOLDER holds tofu.tar.xz. The data of the file's public split are written, one original model is trained and evaluated
as the worker does it after every run. Each stage's seconds are those of the run with the median sum.
"""

import argparse
import tarfile
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import safetensors.torch
import torch

from benchmarks.text.data_folder import data_folder
from lethe.competition.file import CompetitionFile, parse_competition
from lethe.competition.visibility import Visibility
from lethe.evaluation import text
from lethe.evaluation.answer_evaluation import AnswerEvaluator
from lethe.networks.decoder import Decoder
from lethe.preparation.preparation import Preparation
from lethe.preparation.text_task import make_job
from lethe.training.trainer import train_model

FILE = Path(__file__).parents[2] / "examples" / "competitions" / "tofu-small.toml"
REST = "the rest"
STAGES: tuple[tuple[Any, str, str], ...] = (  # what is called, and its stage; {} is an argument
    (safetensors.torch, "load", "loading weights"),
    (Decoder, "load_state_dict", "loading weights"),
    (AnswerEvaluator, "_statistics", "losses and token statistics, {1}"),
    (AnswerEvaluator, "_scores", "losses, {1}"),
    (text, "answer_losses", "losses, paraphrased and wrong answers"),
    (text, "generate_greedily", "generation"),
    (text, "rouge_l_recalls", "ROUGE-L"),
)
Seconds = dict[str, float]


def main() -> None:
    """Print one line per stage."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--file", type=Path, default=FILE, help="competition of language models")
    parser.add_argument("--epochs", type=int, help="of the model's training; default: the file's")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        competition = read_competition(arguments.file, Path(scratch), arguments.epochs)
        evaluator, weights = trained_model(competition, Path(scratch) / "split")
        runs = [evaluated(evaluator, weights) for _ in range(arguments.repeats)]
    runs.sort(key=lambda run: sum(run.values()))
    show(runs[len(runs) // 2])


def read_competition(path: Path, scratch: Path, epochs: int | None) -> CompetitionFile:
    """Return the competition with TOFU's files in `scratch` as its data."""
    with tarfile.open(data_folder() / "tofu.tar.xz") as archive:
        archive.extractall(scratch, filter="data")
    root = next(scratch.rglob("retain_perturbed.json")).parent
    competition = parse_competition(path.read_text())
    dataset = competition.dataset.model_copy(update={"options": {**competition.dataset.options, "root": str(root)}})
    training = competition.training.model_copy(update={"epochs": epochs or competition.training.epochs})
    return competition.model_copy(update={"dataset": dataset, "training": training})


def trained_model(competition: CompetitionFile, split_dir: Path) -> tuple[AnswerEvaluator, bytes]:
    """Return the evaluator of the file's public split, and an original model's weights."""
    preparation = Preparation(competition, Visibility.PUBLIC, split_dir, device="cpu", progress=lambda _: None)
    preparation.workspace.open()
    for step in preparation.data_steps():
        preparation.run(step)
    sets = [preparation.sets[name] for name in ("retain", "forget")]
    job = make_job(split_dir, competition, preparation.network, sets, device="cpu")
    started = time.process_time()
    state = train_model(job, 0)
    print(f"one model trained: {time.process_time() - started:.1f} s of CPU, token accuracy {job.accuracy(state):.3f}")
    evaluator: Any = preparation.evaluator
    return evaluator, safetensors.torch.save(dict(state))


def evaluated(evaluator: AnswerEvaluator, weights: bytes) -> Seconds:
    """Return the CPU seconds of one evaluation by stage."""
    seconds: Seconds = defaultdict(float)
    started = time.process_time()
    with ExitStack() as stack:
        for owner, name, stage in STAGES:
            stack.enter_context(patch.object(owner, name, timed(getattr(owner, name), seconds, stage)))
        evaluator.evaluate(weights)
    all_s = time.process_time() - started
    return {**seconds, REST: all_s - sum(seconds.values())}


def timed(function: Callable[..., Any], seconds: Seconds, stage: str) -> Callable[..., Any]:
    """Return the function with its CPU seconds added to a stage."""

    def measured(*arguments: Any, **named: Any) -> Any:
        started = time.process_time()
        result = function(*arguments, **named)
        seconds[stage.format(*arguments, **named)] += time.process_time() - started
        return result

    return measured


def show(seconds: Seconds) -> None:
    """Print a line per stage."""
    all_s = sum(seconds.values())
    for stage, spent in seconds.items():
        print(f"{stage:40} {spent:8.3f} s {spent / all_s:6.1%}")
    print(f"{'one evaluation':40} {all_s:8.3f} s")


if __name__ == "__main__":
    main()
