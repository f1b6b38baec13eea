"""The outputs of a notebook's models: the last of a slot counts; what takes the device's memory is its own fault."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import safetensors.torch
import torch

from lethe.competition.file import RunRules
from lethe.competition.run_limits import RetrainingCost
from lethe.errors import InvalidSubmission
from lethe.evaluation.image_evaluation import SplitEvaluator, load_original
from lethe.evaluation.shard_outputs import RunOutputs
from lethe.preparation.prepare import prepare_split
from tests.lethe.conftest import competition
from worker.evaluation.notebook_runs import SMOKE_SETUP_S, NotebookOutputs, notebook_policy, program_policy
from worker.evaluation.run_policy import run_policy


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("notebook-runs") / "public"
    prepare_split(competition(n_models=4), "public", out)
    return out


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
