from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from server.competitions.config_file import Training
from tests.worker.splits.conftest import MakeCompetition
from worker.inference import SplitEvaluator, load_original
from worker.splits import graphed
from worker.splits.checkpoints import TrainingCheckpoints
from worker.splits.graphed import can_graph, train_graphed
from worker.splits.manifest import verify_split
from worker.splits.prepare import prepare_split
from worker.splits.train_models import train_in_turn
from worker.splits.training import TrainingJob


def job(device: str, *, network: str = "resnet20", n_images: int = 70, **recipe: Any) -> TrainingJob:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (n_images, 3, 16, 16), generator=generator, dtype=torch.uint8)
    labels = torch.randint(0, 4, (n_images,), generator=generator)
    defaults: dict[str, Any] = {"epochs": 2, "learning_rate": 0.01, "batch_size": 32, "weight_decay": 1e-3}
    description = {"name": network, "options": {}, "input_shape": [3, 16, 16], "n_classes": 4, "input_scale": 0.01}
    return TrainingJob.on_device(description, Training(**(defaults | recipe)), images, labels, device=device)


def test_a_cpu_job_is_not_graphed() -> None:
    assert not can_graph(job("cpu"))


def test_models_that_do_not_fit_side_by_side_are_trained_in_smaller_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def group(_: TrainingJob, seeds: dict[int, int], **__: object) -> dict[int, dict[str, torch.Tensor]]:
        tried.append(len(seeds))
        if len(seeds) > 2:
            raise torch.OutOfMemoryError
        return {index: {"seed": torch.tensor(seed)} for index, seed in seeds.items()}

    monkeypatch.setattr(graphed, "_train_group", group)
    made = train_graphed(job("cpu"), {index: 10 + index for index in range(5)}, at_once=8)
    assert tried == [5, 2, 2, 1]
    assert made["seed"].tolist() == [10, 11, 12, 13, 14]


def test_one_model_that_does_not_fit_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def group(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("too large")

    monkeypatch.setattr(graphed, "_train_group", group)
    with pytest.raises(torch.OutOfMemoryError, match="too large"):
        train_graphed(job("cpu"), {0: 1, 1: 2}, at_once=8)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "recipe",
    [{}, {"optimizer": "adam"}, {"class_weights": "inverse-frequency"}, {"schedule": "cosine", "warmup_epochs": 1}],
)
def test_graphed_models_are_those_of_the_plain_loop(recipe: dict[str, Any]) -> None:
    captured = train_graphed(job("cuda", **recipe), {0: 5, 1: 6, 2: 7}, at_once=2)
    plain = train_in_turn(job("cuda", **recipe), {0: 5, 1: 6, 2: 7})
    for name in plain:
        assert torch.allclose(captured[name].float(), plain[name].float(), atol=1e-3), name


@pytest.mark.gpu
def test_a_graphed_models_bits_do_not_depend_on_its_company() -> None:
    alone = train_graphed(job("cuda"), {3: 9}, at_once=1)
    together = train_graphed(job("cuda"), {1: 4, 3: 9, 5: 2}, at_once=3)
    assert all(torch.equal(alone[name][0], together[name][1]) for name in alone)


@pytest.mark.gpu
def test_graphed_training_resumes_to_the_same_bits(tmp_path: Path) -> None:
    whole = train_graphed(job("cuda", epochs=3), {0: 5, 1: 6})

    class Stopped(Exception):
        pass

    def stop(_epochs: int) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        train_graphed(
            job("cuda", epochs=3),
            {0: 5, 1: 6},
            checkpoints=TrainingCheckpoints(tmp_path, "d", every_s=0),
            on_epoch=stop,
        )
    resumed = train_graphed(job("cuda", epochs=3), {0: 5, 1: 6}, checkpoints=TrainingCheckpoints(tmp_path, "d"))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


@pytest.mark.gpu
def test_networks_that_draw_random_numbers_are_not_graphed() -> None:
    assert can_graph(job("cuda"))
    assert not can_graph(job("cuda", network="mobilenet_v3_small"))
    assert not can_graph(job("cuda", n_images=20))


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_a_split_is_prepared_and_evaluated_on_cuda(
    tmp_path: Path, make_competition: MakeCompetition, precision: str
) -> None:
    competition = make_competition(
        network={"name": "small_cnn", "options": {"widths": [16, 32]}},
        training={"precision": precision, "epochs": 10, "min_train_accuracy": 0.1},
    )
    prepare_split(competition, "public", tmp_path, device="cuda")
    assert verify_split(tmp_path) == []
    evaluator = SplitEvaluator.load(tmp_path, device="cuda")
    first, second = (evaluator.evaluate_state(load_original(tmp_path)) for _ in range(2))
    assert first.confidences.tobytes() == second.confidences.tobytes()
    on_cpu = SplitEvaluator.load(tmp_path).evaluate_state(load_original(tmp_path))
    bound = {"float32": 1e-3, "tf32": 0.05, "bf16": 0.5}[precision]
    assert np.abs(first.confidences - on_cpu.confidences).max() < bound
