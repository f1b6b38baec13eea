"""The two models that one process trains by itself: the original model, and a retraining that is only timed."""

import time
from collections.abc import Callable

import torch

from lethe.preparation.step_cache import OnProgress, PreparationProgress
from lethe.training.checkpoints import TrainingCheckpoints
from lethe.training.trainer import Job, train_model
from lethe.training.trainer_selection import train_or_resume


def train_original(
    job: Job, seed: int, *, checkpoints: TrainingCheckpoints, progress: OnProgress
) -> dict[str, torch.Tensor]:
    """Return the original model's state_dict, trained from the newest of its checkpoints on."""
    return train_or_resume(
        job, 0, seed, checkpoints=checkpoints, on_epoch=_counted(progress, "original model", job.recipe.epochs)
    )


def measure_retraining_s(job: Job, seed: int) -> float:
    """Return how long one retraining by the plain loop takes, seconds: the basis of a run's time limit."""
    started = time.perf_counter()
    train_model(job, seed)
    if job.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def _counted(progress: OnProgress, stage: str, total: int) -> Callable[[int], None]:
    done = 0

    def advance(n: int) -> None:
        nonlocal done
        done += n
        progress(PreparationProgress(stage, done, total))

    return advance
