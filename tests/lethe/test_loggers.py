"""Results in trackers: Weights & Biases without a network, MLflow's calls on a stand-in with its rules."""

import json
import posixpath
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import lethe
from lethe.errors import InvalidInput
from lethe.loggers import MlflowLogger, RunLogger, WandbLogger, numbers

SIDES = np.random.default_rng(0).normal(1.0, 2.0, (3, 16, 6))


@pytest.fixture(scope="module")
def evaluation() -> lethe.Evaluation:
    metrics = ["klom", ("klom", {"bins": 10}), "tow"]
    return lethe.evaluate(SIDES[0], SIDES[1], oracle=SIDES[2], metrics=metrics)


def test_numbers_of_an_evaluation_have_their_references(evaluation: lethe.Evaluation) -> None:
    found = numbers(evaluation)
    klom = evaluation["klom"]
    assert found["klom"] == klom.result.value
    assert found["klom/low"] == klom.result.interval[0]
    assert found["klom/oracle"] == klom.oracle.value
    assert "klom_bins_10" in found
    assert not [name for name in found if name.startswith("tow")]


def test_numbers_of_a_score_and_of_a_benchmark() -> None:
    score = lethe.score(SIDES[0], SIDES[1], oracle=SIDES[2])
    assert numbers(score)["score/oracle"] == score.oracle.headline
    table = lethe.benchmark(Path(__file__).parents[2] / "docs" / "benchmarks" / "tofu-folder.json")
    rows = table.to_frame()
    assert len(numbers(table)) == rows["value"].notna().sum()
    with pytest.raises(InvalidInput, match="dict is no result"):
        numbers({})


class Mlflow:
    """The functions of mlflow.tracking.fluent that are called, and the rules of mlflow.utils.validation (2.9)."""

    NAME = re.compile(r"^[/\w.\- ]*$")

    def __init__(self, active: object = None) -> None:
        self.calls: list[tuple] = []
        self.active = active

    def set_tracking_uri(self, uri: str) -> None:
        self.calls.append(("set_tracking_uri", uri))

    def set_experiment(self, experiment_name: str | None = None, experiment_id: str | None = None) -> None:
        self.calls.append(("set_experiment", experiment_name))

    def active_run(self) -> object:
        return self.active

    def start_run(self, run_id: str | None = None, experiment_id: str | None = None, run_name: str | None = None):
        self.active = object()
        self.calls.append(("start_run", run_name))

    def end_run(self, status: str = "FINISHED") -> None:
        self.active = None
        self.calls.append(("end_run", status))

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        assert len(metrics) <= 1000
        assert all(type(value) is float for value in metrics.values())
        self.calls.append(("log_metrics", list(map(self.checked, metrics))))

    def log_params(self, params: dict[str, object]) -> None:
        self.calls.append(("log_params", {self.checked(name): value for name, value in params.items()}))

    def log_text(self, text: str, artifact_file: str) -> None:
        self.calls.append(("log_text", artifact_file, json.loads(text)["format"]))

    def checked(self, name: str) -> str:
        assert self.NAME.match(name), name
        assert posixpath.normpath(name) == name, name
        assert not name.startswith(("/", "..")), name
        assert len(name) <= 250
        return name


def test_mlflow_gets_metrics_parameters_and_the_document(monkeypatch, evaluation: lethe.Evaluation) -> None:
    mlflow = Mlflow()
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    with MlflowLogger("unlearning", run_name="scrub", tracking_uri="file:///tmp/runs") as logger:
        logger.log(evaluation, parameters={"LR": 0.1, "why?": "a/b"})
    assert mlflow.calls == [
        ("set_tracking_uri", "file:///tmp/runs"),
        ("set_experiment", "unlearning"),
        ("start_run", "scrub"),
        ("log_metrics", list(numbers(evaluation))),
        ("log_text", "Evaluation.json", "lethe-metrics-1"),
        ("log_params", {"LR": 0.1, "why_": "a/b"}),
        ("end_run", "FINISHED"),
    ]


def test_mlflow_run_that_is_active_is_left_open_and_a_failed_one_marked(
    monkeypatch, evaluation: lethe.Evaluation
) -> None:
    mlflow = Mlflow(active=object())
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    with MlflowLogger() as logger:
        logger.metrics({f"metric {number}": 1.0 for number in range(1001)})
    assert [(name, len(given)) for name, given in mlflow.calls] == [("log_metrics", 1000), ("log_metrics", 1)]
    mlflow.active = None
    with pytest.raises(KeyError), MlflowLogger():
        raise KeyError
    assert mlflow.calls[-1] == ("end_run", "FAILED")


@pytest.mark.slow
def test_wandb_stores_a_run_offline(tmp_path: Path, monkeypatch, evaluation: lethe.Evaluation) -> None:
    pytest.importorskip("wandb")
    for name in ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    with WandbLogger("unlearning", name="scrub", mode="offline", dir=str(tmp_path)) as logger:
        logger.log(evaluation, parameters={"LR": 0.1})
        run = logger._run
        assert dict(run.config) == {"LR": 0.1}
        assert {name: run.summary[name] for name in numbers(evaluation)} == numbers(evaluation)
        stored = Path(run.dir) / "Evaluation.json"
        assert json.loads(stored.read_text())["format"] == "lethe-metrics-1"
        assert run.settings.mode == "offline"
    assert len(list(tmp_path.rglob("run-*.wandb"))) == 1


@pytest.mark.parametrize("logger", [MlflowLogger, WandbLogger])
def test_tracker_that_is_not_installed_is_named(logger: type[RunLogger], monkeypatch) -> None:
    name = logger.__name__.removesuffix("Logger").lower()
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InvalidInput, match=f"{name} is not installed"):
        logger()


def test_tracker_of_ones_own(evaluation: lethe.Evaluation) -> None:
    kept = SimpleNamespace(metrics={}, names=[])

    class Own(RunLogger):
        def metrics(self, values) -> None:
            kept.metrics.update(values)

        def parameters(self, values) -> None:
            raise AssertionError

        def text(self, name: str, text: str) -> None:
            kept.names.append(name)

    with Own() as logger:
        logger.log(evaluation)
    assert kept.metrics == numbers(evaluation)
    assert kept.names == ["Evaluation.json"]
