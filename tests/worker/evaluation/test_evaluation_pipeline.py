"""Outputs of runs come in their order, to the same bits; of a notebook, those that it saved last."""

import weakref
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

from lethe.competition.file import RunRules
from lethe.competition.run_limits import RetrainingCost
from lethe.errors import InvalidSubmission
from lethe.evaluation.image_evaluation import SplitEvaluator, load_original
from lethe.evaluation.manifest import Manifest
from lethe.evaluation.model_outputs import find_place, read_integer_buffers, read_original, read_outputs
from lethe.evaluation.shard_outputs import RunOutputs
from lethe.preparation.prepare import prepare_split
from tests.lethe.conftest import competition
from tests.support.images import OWN_ORDER
from worker.evaluation.evaluation_pipeline import RunNotFinite, run_evaluations
from worker.evaluation.notebook_runs import SMOKE_SETUP_S, NotebookOutputs, notebook_policy, program_policy
from worker.evaluation.run_policy import run_policy

pytestmark = pytest.mark.usefixtures("trusted_network_source")


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run-evaluations") / "public"
    prepare_split(competition(n_models=4), "public", out)
    return out


def read_weights(split: Path, *, times: float) -> bytes:
    return safetensors.torch.save({name: value * times for name, value in load_original(split).items()})


@pytest.mark.parametrize("overlapped", [False, True])
def test_outputs_are_the_evaluators_in_the_order_of_runs(split: Path, overlapped: bool) -> None:
    evaluator = SplitEvaluator.load(split)
    weights = [read_weights(split, times=1 + number / 8) for number in range(6)]
    expected = [evaluator.evaluate(one).confidences.tobytes() for one in weights]
    outputs: list[RunOutputs] = []
    with run_evaluations(evaluator, outputs, overlapped=overlapped) as evaluations:
        for run, one in enumerate(weights, start=10):
            evaluations.add(run, one)
    assert [output.confidences.tobytes() for output in outputs] == expected


def test_whole_numbers_stay_as_they_were_read(tmp_path: Path) -> None:
    path = tmp_path / "original.safetensors"
    path.write_bytes(safetensors.torch.save({"order": torch.arange(100)}))
    read = read_integer_buffers(path)
    path.write_bytes(safetensors.torch.save({"order": torch.zeros(100, dtype=torch.int64)}))
    assert torch.equal(read["order"], torch.arange(100))


@pytest.mark.parametrize("overlapped", [False, True])
def test_run_takes_integer_buffers_of_its_own_original(tmp_path: Path, overlapped: bool) -> None:
    network = {"name": "module", "options": {"source": OWN_ORDER}}
    split, path = tmp_path / "public", tmp_path / "original.safetensors"
    prepare_split(competition(n_models=4, network=network, scoring={"setup": "reuse-n-n"}), "public", split)
    outputs: list[RunOutputs] = []
    with run_evaluations(SplitEvaluator.load(split), outputs, overlapped=overlapped) as evaluations:
        for run in range(4):
            path.write_bytes(read_original(split, *find_place(Manifest.read(split), run)))
            evaluations.add(run, path.read_bytes(), integer_buffers=read_integer_buffers(path))
    confidences = np.stack([output.confidences for output in outputs])
    assert np.array_equal(confidences, read_outputs(split, "originals").confidences)


def evaluate(split: Path, scales: dict[int, float], outputs: list[RunOutputs], *, overlapped: bool) -> None:
    """Evaluate the original model, its weights multiplied, for each run."""
    with run_evaluations(SplitEvaluator.load(split), outputs, overlapped=overlapped) as evaluations:
        for run, times in scales.items():
            evaluations.add(run, read_weights(split, times=times))


@pytest.mark.parametrize("overlapped", [False, True])
@pytest.mark.parametrize("later", [{5: 1e30}, {5: 1.0}, {}])
def test_the_first_run_that_is_not_finite_is_named(split: Path, overlapped: bool, later: dict[int, float]) -> None:
    outputs: list[RunOutputs] = []
    with pytest.raises(RunNotFinite, match="infinite or not numbers") as failed:
        evaluate(split, {3: 1.0, 4: 1e30} | later, outputs, overlapped=overlapped)
    assert failed.value.run == 4
    assert len(outputs) == 1


class CrowdedEvaluator(SplitEvaluator):
    """Finds no memory when it is first given a model: the run beside it has taken all."""

    attempts = 1  # that fail, for each model

    def evaluate(self, weights: bytes, *, integer_buffers: Mapping[str, torch.Tensor] | None = None) -> RunOutputs:
        self.seen = [*getattr(self, "seen", []), weights]
        if self.seen.count(weights) <= self.attempts:
            taken = torch.empty(1)
            self.taken = [*getattr(self, "taken", []), (weights, weakref.ref(taken))]
            raise torch.OutOfMemoryError("CUDA out of memory")
        assert integer_buffers is not None, "forgotten since the first attempt"
        assert not [tensor for model, tensor in self.taken if model == weights and tensor() is not None]
        return super().evaluate(weights, integer_buffers=integer_buffers)


@pytest.mark.slow
def test_run_without_free_memory_spoils_no_evaluation(split: Path) -> None:
    weights = [read_weights(split, times=1 + number / 8) for number in range(3)]
    expected = [SplitEvaluator.load(split).evaluate(one).confidences.tobytes() for one in weights]
    outputs: list[RunOutputs] = []
    with run_evaluations(CrowdedEvaluator.load(split), outputs, overlapped=True) as evaluations:
        for run, one in enumerate(weights):
            evaluations.add(run, one, integer_buffers={})
    assert [output.confidences.tobytes() for output in outputs] == expected


def test_memory_missing_between_runs_is_a_host_fault(split: Path) -> None:
    evaluator = CrowdedEvaluator.load(split)
    evaluator.attempts = 2
    with pytest.raises(torch.OutOfMemoryError), run_evaluations(evaluator, [], overlapped=True) as evaluations:
        evaluations.add(0, read_weights(split, times=1))


def test_notebooks_have_the_processor_time_of_their_runs() -> None:
    """Of all runs and their set-up for one that saves its models; of one run and its own start for a program."""
    file = competition(n_models=4)
    one = run_policy(file.limits, retraining=RetrainingCost(9.0, cpu_s=5.0, start_cpu_s=0.5), threads=1)
    assert one.cpu_time_s == pytest.approx(0.2 * 5.0 + 1.0 + 0.5)
    whole = notebook_policy(one, RunRules.of(file), frame_bytes=1, sample=False)
    smoke = notebook_policy(one, RunRules.of(file), frame_bytes=1, sample=True)
    assert (whole.cpu_time_s, smoke.cpu_time_s) == (4 * 2.5 + SMOKE_SETUP_S, 2.5 + SMOKE_SETUP_S)
    assert program_policy(one, RunRules.of(file), frame_bytes=1).cpu_time_s == pytest.approx(2.5 + 5.0 - 1.0)


class FullDevice(SplitEvaluator):
    """Has no space for a model, or fails in another way."""

    message = "CUDA error: out of memory"

    def evaluate(self, weights: bytes, *, integer_buffers: Mapping[str, torch.Tensor] | None = None) -> RunOutputs:
        raise RuntimeError(self.message)


def test_notebook_fails_when_a_counted_model_lacks_memory(split: Path) -> None:
    weights = safetensors.torch.save(load_original(split))
    seen: list[float] = []
    models = NotebookOutputs(SplitEvaluator.load(split), on_model=seen.append)
    models.take(0, weights)
    models.evaluator = FullDevice.load(split)
    models.take(1, weights)
    assert len(models.chosen([0])) == 1
    with pytest.raises(InvalidSubmission, match="empty_cache") as failed:
        models.chosen([0, 1])
    assert failed.value.slug == "out-of-memory"
    assert len(seen) == 2


def test_another_failure_of_the_evaluation_is_not_the_notebooks(split: Path) -> None:
    evaluator = FullDevice.load(split)
    evaluator.message = "CUDA error: an illegal memory access was encountered"
    with pytest.raises(RuntimeError, match="illegal"):
        NotebookOutputs(evaluator, on_model=lambda _: None).take(0, b"")


def test_a_model_saved_again_replaces_the_one_before(split: Path) -> None:
    models = NotebookOutputs(SplitEvaluator.load(split), on_model=lambda _: None)
    changed = {name: torch.zeros_like(value) for name, value in load_original(split).items()}
    models.take(0, safetensors.torch.save(changed))
    models.take(0, safetensors.torch.save(load_original(split)))
    expected = SplitEvaluator.load(split).evaluate_state(load_original(split))
    assert models.chosen([0])[0].confidences.tobytes() == expected.confidences.tobytes()


def test_weights_are_kept_of_the_first_slots_as_they_were_saved_last(split: Path) -> None:
    models = NotebookOutputs(None, on_model=lambda _: None, n_kept=2)
    for slot, weights in ((0, b"a"), (1, b"b"), (2, b"c"), (0, b"d")):
        models.take(slot, weights)
    assert models.kept_of([0, 1, 2]) == [b"d", b"b"]
    assert models.kept_of([1, 2, 0]) == [b"b"], "run 1 is of a slot that was not kept"
    assert models.kept_of([2, 0]) == []
