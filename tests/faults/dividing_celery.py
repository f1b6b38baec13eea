"""Celery's program in which every split is worth dividing, and which waits, with a shard of models in its hands.

`python -m tests.faults.dividing_celery`. A worker that has a shard says so by a file in HELD with its name,
and begins to train when there is a file `go`.
"""

import os
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from lethe.preparation import image_task, model_shards
from lethe.training.trainer import State, TrainingJob
from worker.preparation import prepare_split_job

HELD = Path(os.environ["HELD"])
_train_models = image_task.train_models


def _wait_and_train(job: TrainingJob, seeds: Mapping[int, int], **options: Any) -> State:
    (HELD / str(os.getpid())).touch()
    while not (HELD / "go").exists():
        time.sleep(0.01)
    return _train_models(job, seeds, **options)


model_shards.MODELS_PER_SHARD = 2
image_task.train_models = _wait_and_train
prepare_split_job.begin_split = partial(prepare_split_job.begin_split, share_from_s=0)

from worker.__main__ import main  # noqa: E402

if __name__ == "__main__":
    main(sys.argv[1:])
