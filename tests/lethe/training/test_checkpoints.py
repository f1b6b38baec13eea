from pathlib import Path
from typing import Any

import pytest
import torch

from lethe.competition.file import Training
from lethe.training.checkpoints import TrainingCheckpoints
from lethe.training.trainer import ModelTraining, TrainingJob
from lethe.training.trainer_selection import train_in_turn, train_or_resume

pytestmark = pytest.mark.usefixtures("trusted_network_source")

DROPOUT = """
from torch import nn
def build(input_shape, n_classes):
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(4 * 16, n_classes)
    )
"""
NETWORK = {"name": "module", "options": {"source": DROPOUT}, "input_shape": [1, 6, 6], "n_classes": 3}


def job(**recipe: Any) -> TrainingJob:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (40, 1, 6, 6), generator=generator, dtype=torch.uint8)
    labels = torch.randint(0, 3, (40,), generator=generator)
    defaults: dict[str, Any] = {"epochs": 4, "learning_rate": 0.01, "batch_size": 16, "augmentation": "flip"}
    return TrainingJob.on_device(
        {**NETWORK, "input_scale": 0.01}, Training(**(defaults | recipe)), images, labels, device="cpu"
    )


class Stopped(Exception):
    pass


def stop_after(epochs: int) -> Any:
    seen = 0

    def on_epoch(n: int) -> None:
        nonlocal seen
        seen += n
        if seen >= epochs:
            raise Stopped

    return on_epoch


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("stopped_after", [1, 3])
def test_a_training_cut_off_ends_in_the_same_bits(tmp_path: Path, optimizer: str, stopped_after: int) -> None:
    whole = train_or_resume(job(optimizer=optimizer), 0, 7)
    with pytest.raises(Stopped):
        train_or_resume(
            job(optimizer=optimizer),
            0,
            7,
            checkpoints=TrainingCheckpoints(tmp_path, "d", every_s=0),
            on_epoch=stop_after(stopped_after),
        )
    counted: list[int] = []
    resumed = train_or_resume(
        job(optimizer=optimizer), 0, 7, checkpoints=TrainingCheckpoints(tmp_path, "d"), on_epoch=counted.append
    )
    assert counted == [stopped_after] + [1] * (4 - stopped_after)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_finished_models_are_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = {3: 30, 4: 40, 5: 50}
    whole = train_in_turn(job(), seeds)
    with pytest.raises(Stopped):
        train_in_turn(job(), seeds, checkpoints=TrainingCheckpoints(tmp_path, "d", every_s=0), on_epoch=stop_after(9))
    started: list[int] = []
    start = ModelTraining.start
    monkeypatch.setattr(ModelTraining, "start", lambda j, seed: started.append(seed) or start(j, seed))
    resumed = train_in_turn(job(), seeds, checkpoints=TrainingCheckpoints(tmp_path, "d"))
    assert started == [50]
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_checkpoints_of_other_data_are_not_taken_over(tmp_path: Path) -> None:
    kept = TrainingCheckpoints(tmp_path, "old data", every_s=0)
    kept.model_done(0, {"x": torch.zeros(1)})
    assert kept.finished(0) is not None
    assert TrainingCheckpoints(tmp_path, "new data").finished(0) is None


def test_quick_training_writes_nothing(tmp_path: Path) -> None:
    train_or_resume(job(), 0, 7, checkpoints=TrainingCheckpoints(tmp_path, "d", every_s=60))
    assert list(tmp_path.iterdir()) == []


def test_clear_removes_what_a_shards_file_holds(tmp_path: Path) -> None:
    checkpoints = TrainingCheckpoints(tmp_path, "d", every_s=0)
    train_in_turn(job(), {0: 1, 1: 2}, checkpoints=checkpoints)
    assert list(tmp_path.iterdir()) != []
    checkpoints.clear(range(2))
    assert list(tmp_path.iterdir()) == []


def test_dropout_is_a_function_of_the_models_seed() -> None:
    torch.manual_seed(1)
    first = train_or_resume(job(), 0, 7)
    torch.manual_seed(2)
    second = train_or_resume(job(), 0, 7)
    assert all(torch.equal(first[name], second[name]) for name in first)
