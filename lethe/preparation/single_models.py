"""The two models that one process trains by itself: the original model, and a retraining that is only timed."""

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import torch

from lethe.preparation.step_cache import OnProgress, PreparationProgress
from lethe.training.checkpoints import TrainingCheckpoints
from lethe.training.stacked_training import ENSEMBLE_SIZE, can_stack, train_stacked
from lethe.training.trainer import Job, TrainingJob
from lethe.training.trainer_selection import train_or_resume

TIMED_EPOCHS = 4  # where models are stacked; of these, what comes before the end of the first is not counted


def train_original(
    job: Job, seed: int, *, checkpoints: TrainingCheckpoints, progress: OnProgress
) -> dict[str, torch.Tensor]:
    """Return the original model's state_dict, trained from the newest of its checkpoints on."""
    return train_or_resume(
        job, 0, seed, checkpoints=checkpoints, on_epoch=_counted(progress, "original model", job.recipe.epochs)
    )


def measure_retraining(job: Job, seed: int) -> dict[str, float]:
    """Return what one retraining takes, in seconds: the basis of a run's time limit.

    retraining_time_s: by the clock, in the plain loop. retraining_cpu_s: the same of the processor, on all its threads;
    a device's is not counted. fastest_cpu_s: the least that is known, which is the plain loop's, or a model's share of
    stacked training, where a step costs next to nothing beyond its arithmetic; of the plain loop, which then only has
    to be known to be slower, some epochs are measured.
    """
    is_stacked = isinstance(job, TrainingJob) and can_stack(job)
    epochs = min(job.recipe.epochs, TIMED_EPOCHS) if is_stacked else job.recipe.epochs
    started, cpu_started = time.perf_counter(), time.process_time()
    training = job.start(seed)
    for _ in range(epochs):
        training.run_epoch()
    if job.device.type == "cuda":
        torch.cuda.synchronize()
    whole = job.recipe.epochs / epochs
    spent = {
        "retraining_time_s": whole * (time.perf_counter() - started),
        "retraining_cpu_s": whole * (time.process_time() - cpu_started),
    }
    spent["fastest_cpu_s"] = spent["retraining_cpu_s"]
    if isinstance(job, TrainingJob) and is_stacked:
        spent["fastest_cpu_s"] = min(spent["fastest_cpu_s"], _stacked_model_s(job))
    return {name: round(seconds, 4) for name, seconds in spent.items()}


def _stacked_model_s(job: TrainingJob) -> float:
    """Return a model's share of the processor seconds of stacked training, by the quickest of a few epochs."""
    few = job.recipe.model_copy(update={"epochs": TIMED_EPOCHS})
    ends: list[float] = []
    seeds = range(ENSEMBLE_SIZE)
    train_stacked(replace(job, recipe=few), seeds, on_epoch=lambda _: ends.append(time.process_time()))
    epoch_s = min(after - before for before, after in pairwise(ends))
    return job.recipe.epochs * epoch_s / ENSEMBLE_SIZE


def _counted(progress: OnProgress, stage: str, total: int) -> Callable[[int], None]:
    done = 0

    def advance(n: int) -> None:
        nonlocal done
        done += n
        progress(PreparationProgress(stage, done, total))

    return advance
