"""What retraining takes of the processor, measured in the sandbox that runs submissions."""

from pathlib import Path

import pytest

from lethe.competition.run_limits import RetrainingCost
from server.config import Settings
from tests.lethe.conftest import competition
from tests.sandbox.conftest import write_split
from worker.preparation import retraining_time
from worker.preparation.retraining_time import measure_retraining_cost

EPOCHS = {"epochs": 40, "batch_size": 4, "min_train_accuracy": 0.01}


@pytest.fixture
def split(tmp_path: Path) -> Path:
    return write_split(tmp_path / "split" / "visible").parent


def test_retraining_is_measured_without_its_start(tmp_path: Path, split: Path) -> None:
    settings = Settings(home=tmp_path / "home")
    cost = measure_retraining_cost(settings, split, competition(training=EPOCHS), time_s=1.0)
    assert cost.cpu_s is not None
    assert 0 < cost.start_cpu_s < cost.cpu_s
    assert cost.time_s == 1.0
    assert not list(settings.scratch.iterdir())


def test_long_retraining_is_measured_by_some_of_its_epochs(
    tmp_path: Path, split: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []

    def cpu_s(_self: object, _name: str, files: dict[str, str], *, repeats: int) -> float:
        sent.append(files.get("recipe.json", ""))
        return 0.5 if "recipe.json" not in files else 3.5

    monkeypatch.setattr(retraining_time._Measurement, "cpu_s", cpu_s)
    cost = measure_retraining_cost(Settings(home=tmp_path), split, competition(training=EPOCHS), time_s=600.0)
    assert '"epochs": 2' in sent[1]
    assert cost == RetrainingCost(600.0, cpu_s=3.0 * 20, start_cpu_s=0.5)


def test_gpu_and_failed_measurement_leave_processor_time_unknown(
    tmp_path: Path, split: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(home=tmp_path)
    on_gpu = settings.model_copy(update={"worker_device": "cuda"})
    assert measure_retraining_cost(on_gpu, split, competition(), time_s=2.0) == RetrainingCost(2.0)
    monkeypatch.setattr(retraining_time, "RETRAINING", "def unlearning(net, *loaders):\n    raise ValueError\n")
    assert measure_retraining_cost(settings, split, competition(), time_s=2.0) == RetrainingCost(2.0)
