"""What retraining takes of the processor, measured in the sandbox that runs submissions."""

import time
from pathlib import Path

import pytest

from lethe.competition.run_limits import RetrainingCost
from lethe.evaluation.manifest import RetrainingTimes
from server.config import Settings
from tests.lethe.conftest import competition
from tests.sandbox.conftest import write_split
from worker.preparation import retraining_time
from worker.preparation.retraining_time import measure_retraining_cost

ONE_SECOND = RetrainingTimes(retraining_time_s=1.0)
EPOCHS = {"epochs": 40, "batch_size": 4, "min_train_accuracy": 0.01}


@pytest.fixture
def split(tmp_path: Path) -> Path:
    return write_split(tmp_path / "split" / "visible").parent


def test_retraining_is_measured_without_its_start(tmp_path: Path, split: Path) -> None:
    settings = Settings(home=tmp_path / "home")
    cost = measure_retraining_cost(settings, split, competition(training=EPOCHS), ONE_SECOND)
    assert cost.cpu_s is not None
    assert 0 < cost.start_cpu_s < cost.cpu_s
    assert cost.time_s == 1.0
    assert not list(settings.scratch.iterdir())


def test_long_retraining_is_measured_by_some_of_its_epochs(tmp_path, split, monkeypatch):
    sent: list[str] = []

    def cpu_s(_self: object, _name: str, files: dict[str, str], *, repeats: int) -> float:
        sent.append(files.get("recipe.json", ""))
        return 0.5 if "recipe.json" not in files else 3.5

    monkeypatch.setattr(retraining_time._Measurement, "cpu_s", cpu_s)
    timing = RetrainingTimes(retraining_time_s=600.0)
    cost = measure_retraining_cost(Settings(home=tmp_path), split, competition(training=EPOCHS), timing)
    assert '"epochs": 2' in sent[1]
    assert cost == RetrainingCost(600.0, cpu_s=3.0 * 20, start_cpu_s=0.5)


@pytest.mark.parametrize(("others", "kept"), [(0.0, False), (0.8, True)])
def test_measurement_beside_other_work_replaces_none(tmp_path, split, monkeypatch, *, others, kept):
    monkeypatch.setattr(retraining_time._Measurement, "cpu_s", lambda _self, name, _files, *, repeats: len(name))
    monkeypatch.setattr(retraining_time._Load, "of_others", lambda _self, _own_s: others)
    before, settings = RetrainingCost(1.0, cpu_s=0.19, start_cpu_s=0.1), Settings(home=tmp_path)
    found = measure_retraining_cost(settings, split, competition(), ONE_SECOND, before=before)
    assert (found == before) is kept
    assert ("the earlier measurement stays" in found.doubt) is kept


def test_first_measurement_beside_other_work_is_the_least_of_several(tmp_path, split, monkeypatch):
    took = iter([0.5, 9.5, 0.5, 3.5])
    monkeypatch.setattr(retraining_time._Measurement, "cpu_s", lambda *_, **__: next(took))
    monkeypatch.setattr(retraining_time._Load, "of_others", lambda _self, _own_s: 0.8)
    found = measure_retraining_cost(Settings(home=tmp_path), split, competition(), ONE_SECOND)
    assert found == RetrainingCost(1.0, cpu_s=3.0, start_cpu_s=0.5)
    assert "others used 80% of the machine's processors" in found.doubt


def test_load_counts_what_others_compute() -> None:
    load = retraining_time._Load(1)
    until = time.process_time() + 0.3
    while time.process_time() < until:
        pass
    assert load.of_others(0.0) > load.of_others(0.3) >= 0.0


def test_fastest_retraining_known_is_what_counts(tmp_path: Path, split: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    takes, asked = {"nothing": 0.5, "retraining": 3.5}, []

    def cpu_s(_self: object, name: str, _files: dict[str, str], *, repeats: int) -> float:
        asked.append(name)
        return takes[name]

    monkeypatch.setattr(retraining_time._Measurement, "cpu_s", cpu_s)
    for stacked_s, expected in ((0.2, 0.2), (4.0, 3.0), (2.0, 2.0)):
        asked.clear()
        timing = RetrainingTimes(retraining_time_s=1.0, retraining_cpu_s=5.0, fastest_cpu_s=stacked_s)
        cost = measure_retraining_cost(Settings(home=tmp_path), split, competition(training=EPOCHS), timing)
        assert cost == RetrainingCost(1.0, cpu_s=expected, start_cpu_s=0.5)
        assert ("retraining" in asked) is (stacked_s > 1.25), "a loop that is known to be far slower is not run"


def test_gpu_and_failed_measurement_leave_processor_time_unknown(tmp_path, split, monkeypatch):
    settings, timing = Settings(home=tmp_path), RetrainingTimes(retraining_time_s=2.0)
    on_gpu = settings.model_copy(update={"worker_device": "cuda"})
    assert measure_retraining_cost(on_gpu, split, competition(), timing) == RetrainingCost(2.0)
    monkeypatch.setattr(retraining_time, "RETRAINING", "def unlearning(net, *loaders):\n    raise ValueError\n")
    assert measure_retraining_cost(settings, split, competition(), timing) == RetrainingCost(2.0)
