"""Celery's program in which every split is worth dividing, and which waits, with a shard of models in its hands.

`python -m tests.faults.dividing_celery worker ...`. A worker that has a shard says so by a file in HELD with its name,
and begins to train when there is a file `go`.
"""

import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from worker import preparing
from worker.splits import model_shards
from worker.splits.training import State, TrainingJob

HELD = Path(os.environ["HELD"])
_train_models = model_shards.train_models


def _wait_and_train(job: TrainingJob, seeds: Mapping[int, int], **options: Any) -> State:
    (HELD / str(os.getpid())).touch()
    while not (HELD / "go").exists():
        time.sleep(0.01)
    return _train_models(job, seeds, **options)


model_shards.MODELS_PER_SHARD = 4
model_shards.train_models = _wait_and_train
preparing.begin_split = partial(preparing.begin_split, share_from_s=0)

from celery.__main__ import main  # noqa: E402

if __name__ == "__main__":
    main()
