"""Outputs of runs come in their order, to the same bits, whether runs are evaluated at once or beside the next one."""

from pathlib import Path

import pytest
import safetensors.torch

from tests.worker.splits.conftest import competition
from worker.inference import RunOutputs, SplitEvaluator, load_original
from worker.run_evaluations import RunNotFinite, run_evaluations
from worker.splits.prepare import prepare_split


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run-evaluations") / "public"
    prepare_split(competition(n_models=2), "public", out)
    return out


def weights_of(split: Path, *, times: float) -> bytes:
    return safetensors.torch.save({name: value * times for name, value in load_original(split).items()})


@pytest.mark.parametrize("overlapped", [False, True])
def test_outputs_are_the_evaluators_in_the_order_of_runs(split: Path, overlapped: bool) -> None:
    evaluator = SplitEvaluator.load(split)
    weights = [weights_of(split, times=1 + number / 8) for number in range(6)]
    expected = [evaluator.evaluate(one).confidences.tobytes() for one in weights]
    outputs: list[RunOutputs] = []
    with run_evaluations(evaluator, outputs, overlapped=overlapped) as evaluations:
        for run, one in enumerate(weights, start=10):
            evaluations.add(run, one)
    assert [output.confidences.tobytes() for output in outputs] == expected


def evaluate(split: Path, scales: dict[int, float], outputs: list[RunOutputs], *, overlapped: bool) -> None:
    """Evaluate the original model, its weights multiplied, for each run."""
    with run_evaluations(SplitEvaluator.load(split), outputs, overlapped=overlapped) as evaluations:
        for run, times in scales.items():
            evaluations.add(run, weights_of(split, times=times))


@pytest.mark.parametrize("overlapped", [False, True])
@pytest.mark.parametrize("later", [{5: 1e30}, {5: 1.0}, {}])
def test_the_first_run_that_is_not_finite_is_named(split: Path, overlapped: bool, later: dict[int, float]) -> None:
    outputs: list[RunOutputs] = []
    with pytest.raises(RunNotFinite, match="infinite or not numbers") as failed:
        evaluate(split, {3: 1.0, 4: 1e30} | later, outputs, overlapped=overlapped)
    assert failed.value.run == 4
    assert len(outputs) == 1
