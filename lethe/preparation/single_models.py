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


def measure_retraining(job: Job, seed: int) -> dict[str, float]:
    """Return what one retraining by the plain loop takes, in seconds: the basis of a run's time limit.

    retraining_time_s: by the clock. retraining_cpu_s: of the processor, on all its threads; a device's is not counted.
    """
    started, cpu_started = time.perf_counter(), time.process_time()
    train_model(job, seed)
    if job.device.type == "cuda":
        torch.cuda.synchronize()
    spent = {
        "retraining_time_s": time.perf_counter() - started,
        "retraining_cpu_s": time.process_time() - cpu_started,
    }
    return {name: round(seconds, 4) for name, seconds in spent.items()}


def _counted(progress: OnProgress, stage: str, total: int) -> Callable[[int], None]:
    done = 0

    def advance(n: int) -> None:
        nonlocal done
        done += n
        progress(PreparationProgress(stage, done, total))

    return advance
