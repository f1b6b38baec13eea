"""Results into the trackers that people have: MLflow, Weights & Biases, or one of your own.

    with lethe.loggers.WandbLogger("unlearning", mode="offline") as logger:
        logger.log(lethe.evaluate(models, split=split), parameters={"method": "scrub", "LR": 0.01})

Neither package comes with Lethe: install `mlflow` or `wandb` beside it.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias, Union

from lethe.errors import InvalidInput

if TYPE_CHECKING:
    from lethe.api.benchmark_result import BenchmarkResult
    from lethe.api.evaluation import Evaluation
    from lethe.api.method_runs import MethodRuns
    from lethe.api.score_result import ScoreResult

Result: TypeAlias = Union["Evaluation", "ScoreResult", "MethodRuns", "BenchmarkResult"]
Scalar = str | int | float | bool
MAX_BATCH = 1_000  # metrics that MLflow takes in one call
MAX_NAME_LENGTH = 250  # that MLflow takes
PART = re.compile(r"[^\w. -]+")


class RunLogger(ABC):
    """One run of a tracker, begun and ended by `with`. Derive from it for another tracker."""

    def log(self, result: Result, *, parameters: Mapping[str, Scalar] | None = None) -> None:
        """Store a result's numbers, all of it as a JSON document, and the parameters that are given."""
        self.metrics(numbers(result))
        self.text(f"{type(result).__name__}.json", result.to_json())
        if parameters:
            self.parameters(parameters)

    @abstractmethod
    def metrics(self, values: Mapping[str, float]) -> None:
        """Store numbers by name; a name has parts between slashes, such as klom/oracle."""

    @abstractmethod
    def parameters(self, values: Mapping[str, Scalar]) -> None:
        """Store what the run was made with."""

    @abstractmethod
    def text(self, name: str, text: str) -> None:
        """Store a file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class MlflowLogger(RunLogger):
    """A run of MLflow: the one that is active, else a new one. Raises InvalidInput where mlflow is not installed.

    experiment: None for MLflow's own choice. run_name: of a new run. tracking_uri: where it is stored.
    """

    def __init__(
        self, experiment: str | None = None, *, run_name: str | None = None, tracking_uri: str | None = None
    ) -> None:
        self._mlflow = _installed("mlflow")
        self._experiment, self._run_name, self._uri = experiment, run_name, tracking_uri
        self._is_ours = False

    def __enter__(self) -> Self:
        if self._uri is not None:
            self._mlflow.set_tracking_uri(self._uri)
        if self._mlflow.active_run() is None:
            if self._experiment is not None:
                self._mlflow.set_experiment(self._experiment)
            self._mlflow.start_run(run_name=self._run_name)
            self._is_ours = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_ours:
            self._mlflow.end_run("FINISHED" if error is None else "FAILED")

    def metrics(self, values: Mapping[str, float]) -> None:
        given = list(values.items())
        for start in range(0, len(given), MAX_BATCH):
            self._mlflow.log_metrics(dict(given[start : start + MAX_BATCH]))

    def parameters(self, values: Mapping[str, Scalar]) -> None:
        self._mlflow.log_params({_part(name)[:MAX_NAME_LENGTH]: value for name, value in values.items()})

    def text(self, name: str, text: str) -> None:
        self._mlflow.log_text(text, name)


class WandbLogger(RunLogger):
    """A new run of Weights & Biases. Raises InvalidInput where wandb is not installed.

    mode: "offline" sends nothing; None for what the environment says. options: more of `wandb.init`, such as `dir`.
    """

    def __init__(
        self, project: str | None = None, *, name: str | None = None, mode: str | None = None, **options: Any
    ) -> None:
        self._wandb = _installed("wandb")
        self._options = {"project": project, "name": name, "mode": mode, **options}
        self._run: Any = None

    def __enter__(self) -> Self:
        self._run = self._wandb.init(**self._options)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run.finish(exit_code=0 if error is None else 1)

    def metrics(self, values: Mapping[str, float]) -> None:
        self._run.log(dict(values))

    def parameters(self, values: Mapping[str, Scalar]) -> None:
        self._run.config.update(dict(values))

    def text(self, name: str, text: str) -> None:
        path = Path(self._run.dir) / name
        path.write_text(text, encoding="utf-8")
        self._run.save(str(path), base_path=self._run.dir, policy="now")


def numbers(result: Result) -> dict[str, float]:
    """Return a result's numbers by name: values, ends of 95 % intervals, references. What is not finite is left out."""
    named = {"/".join(map(_part, parts)): value for parts, value in _numbers(result)}
    return {
        name[:MAX_NAME_LENGTH]: float(value)
        for name, value in named.items()
        if value is not None and math.isfinite(value)
    }


def _numbers(result: Any) -> Iterator[tuple[tuple[str, ...], float | None]]:
    from lethe.api.benchmark_result import BenchmarkResult, tidy_rows
    from lethe.api.evaluation import Evaluation
    from lethe.api.method_runs import MethodRuns
    from lethe.api.score_result import ScoreResult

    if isinstance(result, Evaluation):
        yield from _of_evaluation(result)
    elif isinstance(result, ScoreResult):
        yield from _of_score(result)
    elif isinstance(result, MethodRuns):
        yield from (((name,), result.runs.median(name)) for name in result.runs.runs[0])
    elif isinstance(result, BenchmarkResult):
        for _, cell, method, _, _, metric, value, *_ in tidy_rows(result.content):
            yield (cell, method, metric), value
    else:
        raise InvalidInput(f"{type(result).__name__} is no result of lethe.evaluate, score, methods.run or benchmark")


def _of_evaluation(result: "Evaluation") -> Iterator[tuple[tuple[str, ...], float | None]]:
    for name, found in result.items():
        if found.result is None:
            continue
        yield (name,), found.result.value
        yield from _ends(name, found.result.interval)
        for side, reference in (("oracle", found.oracle), ("original", found.original)):
            yield (name, side), None if reference is None else reference.value


def _of_score(result: "ScoreResult") -> Iterator[tuple[tuple[str, ...], float | None]]:
    score = result.score
    yield ("score",), result.value
    yield from _ends("score", result.interval)
    for name in ("forgetting_quality", "retain_ratio", "test_ratio"):
        yield (name,), getattr(score, name)
    for side, reference in (("oracle", result.oracle), ("original", result.original)):
        yield ("score", side), None if reference is None else reference.headline


def _ends(name: str, interval: tuple[float, float] | None) -> Iterator[tuple[tuple[str, ...], float]]:
    if interval is not None:
        yield (name, "low"), interval[0]
        yield (name, "high"), interval[1]


def _part(text: str) -> str:
    """Return a part of a name in the letters that every tracker takes; a path it must not be."""
    return PART.sub("_", text).strip(". ") or "_"


def _installed(package: str) -> Any:
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise InvalidInput(f"{package} is not installed: it does not come with Lethe, install it beside it") from error
