from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lethe.competition.file import Training
from lethe.device import one_thread
from lethe.evaluation.image_evaluation import SplitEvaluator, load_original
from lethe.evaluation.manifest import verify_split
from lethe.preparation.prepare import prepare_split
from lethe.training import cuda_graph_training
from lethe.training import trainer as training
from lethe.training.checkpoints import TrainingCheckpoints
from lethe.training.cuda_graph_training import StepRefused, can_graph, train_graphed
from lethe.training.many_models import train_in_turn
from lethe.training.trainer import ModelTraining, TrainingJob

pytestmark = pytest.mark.usefixtures("trusted_network_source")


def job(
    device: str, *, network: str = "resnet20", n_images: int = 70, options: dict[str, Any] | None = None, **recipe: Any
) -> TrainingJob:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (n_images, 3, 16, 16), generator=generator, dtype=torch.uint8)
    labels = torch.randint(0, 4, (n_images,), generator=generator)
    defaults: dict[str, Any] = {"epochs": 2, "learning_rate": 0.01, "batch_size": 32, "weight_decay": 1e-3}
    description: dict[str, Any] = {
        "name": network,
        "options": options or {},
        "input_shape": [3, 16, 16],
        "n_classes": 4,
    }
    description["input_scale"] = 0.01
    return TrainingJob.on_device(description, Training(**(defaults | recipe)), images, labels, device=device)


class StandInStream:
    """A stream where there is no device: it knows whether work is given to it."""

    current: "StandInStream | None" = None

    def synchronize(self) -> None:
        pass


class StandInGraph:
    """What a graph does when it is replayed: the step, with new gradients, on the inputs that lie there by then."""

    def __init__(self, step: Callable[[], None], stream: StandInStream) -> None:
        self.step, self.stream = step, stream

    def replay(self) -> None:
        assert StandInStream.current is self.stream
        self.step()


@pytest.fixture
def stand_in_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the CPU stand in for a CUDA device, with its fused optimisers, so that all but the capture itself runs."""

    @contextmanager
    def stream(given: StandInStream) -> Iterator[None]:
        before, StandInStream.current = StandInStream.current, given
        try:
            yield
        finally:
            StandInStream.current = before

    monkeypatch.setattr(torch.cuda, "Stream", StandInStream)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(cuda_graph_training, "captured", StandInGraph)
    monkeypatch.setattr(cuda_graph_training, "rehearse", lambda step: step())
    with one_thread(torch.device("cpu")):
        yield


def test_a_cpu_job_is_not_graphed() -> None:
    assert not can_graph(job("cpu"))


class Stopped(Exception):
    pass


def stop(_epochs: int) -> None:
    raise Stopped


RECIPES: list[dict[str, Any]] = [
    {},
    {"optimizer": "adam"},
    {"class_weights": "inverse-frequency"},
    {"schedule": "cosine", "warmup_epochs": 1},
    {"augmentation": "crop-flip"},
]


@pytest.mark.usefixtures("stand_in_device")
@pytest.mark.parametrize("recipe", RECIPES)
def test_graph_steps_give_the_models_of_the_plain_loop(recipe: dict[str, Any]) -> None:
    seeds = {0: 5, 1: 6, 2: 7}
    stepped = train_graphed(job("cpu", network="small_cnn", **recipe), seeds, at_once=2)
    plain = train_in_turn(job("cpu", network="small_cnn", **recipe), seeds)
    for name in plain:
        assert torch.allclose(stepped[name].float(), plain[name].float(), atol=1e-4), name


@pytest.mark.usefixtures("stand_in_device")
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_fused_step_resumes_a_checkpoint_with_the_same_bits(tmp_path: Path, optimizer: str) -> None:
    """Files keep no memory layout, and a fused step reads weights, gradients and momentum as they lie in memory."""
    three = {"epochs": 3, "optimizer": optimizer, "network": "small_cnn"}
    whole = train_graphed(job("cpu", **three), {0: 5, 1: 6})
    kept = TrainingCheckpoints(tmp_path, "d", every_s=0)
    with pytest.raises(Stopped):
        train_graphed(job("cpu", **three), {0: 5, 1: 6}, checkpoints=kept, on_epoch=stop)
    resumed = train_graphed(job("cpu", **three), {0: 5, 1: 6}, checkpoints=TrainingCheckpoints(tmp_path, "d"))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


@pytest.mark.usefixtures("stand_in_device")
def test_an_epochs_batches_are_cut_on_the_models_own_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """An epoch that ends in a single image joins two batches, which is work on the device like any other."""
    cut_on: list[StandInStream | None] = []
    split_batches = training.split_batches

    def cut(*arguments: Any) -> Any:
        cut_on.append(StandInStream.current)
        return split_batches(*arguments)

    monkeypatch.setattr(training, "split_batches", cut)
    train_graphed(job("cpu", network="small_cnn", n_images=33, epochs=1), {0: 5})
    assert cut_on
    assert None not in cut_on


NORMALISED = """
from torch import nn
def build(input_shape, n_classes):
    first = nn.Conv2d(3, 4, 3, stride=2, bias=False)
    return nn.Sequential(first, nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 49, n_classes))
"""


def broken_off(at: str, tried: list[str]) -> Callable[..., Any]:
    """Return a capture that computes as far as `at` on the host, and then is refused."""

    def capture(step: Callable[[], None], stream: StandInStream) -> StandInGraph:
        tried.append(at)
        training: ModelTraining = step.__self__.training  # type: ignore[attr-defined]
        if at == "backward":
            training.backward(step.__self__.images, step.__self__.labels)  # type: ignore[attr-defined]
        elif at == "optimizer":
            step()
        training.generator.manual_seed(0)
        raise StepRefused(f"broken off at {at}")

    return capture


def refuse(_step: Callable[[], None]) -> None:
    raise StepRefused("broken off at rehearsal")


@pytest.mark.usefixtures("stand_in_device")
@pytest.mark.parametrize("at", ["rehearsal", "begin", "backward", "optimizer"])
@pytest.mark.parametrize("resumed", [False, True])
def test_uncapturable_step_gives_the_same_bits_without_a_graph(monkeypatch, tmp_path, at, resumed):
    wanted, seeds = (
        job("cpu", network="module", options={"source": NORMALISED}, augmentation="flip"),
        {0: 5, 1: 6, 2: 7},
    )
    replayed = train_graphed(wanted, seeds, at_once=2)
    if resumed:
        with pytest.raises(Stopped):
            train_graphed(wanted, seeds, checkpoints=TrainingCheckpoints(tmp_path, "d", every_s=0), on_epoch=stop)
    notes: list[str] = []
    tried: list[str] = []
    monkeypatch.setattr(cuda_graph_training, "captured", broken_off(at, tried))
    if at == "rehearsal":
        monkeypatch.setattr(cuda_graph_training, "rehearse", refuse)
    eager = train_graphed(
        wanted, seeds, at_once=2, checkpoints=TrainingCheckpoints(tmp_path, "d"), on_note=notes.append
    )
    assert all(torch.equal(replayed[name], eager[name]) for name in replayed)
    assert notes == [f"training steps are not captured as CUDA graphs, which takes longer: broken off at {at}"]
    assert tried == ([] if at == "rehearsal" else [at])


REPLACES_A_BUFFER = """
import torch
from torch import nn
class Centred(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(768))
        self.register_buffer("latest", None)
    def forward(self, x):
        x = x.flatten(1)
        if self.training:
            self.latest = x.mean(0)
            self.mean = 0.9 * self.mean + 0.1 * self.latest
        return x - self.mean
def build(input_shape, n_classes):
    return nn.Sequential(Centred(), nn.Linear(768, n_classes))
"""


@pytest.mark.usefixtures("stand_in_device")
def test_network_that_replaces_a_buffer_trains_without_capture() -> None:
    wanted = job("cpu", network="module", options={"source": REPLACES_A_BUFFER})
    notes: list[str] = []
    eager = train_graphed(wanted, {0: 5, 1: 6, 2: 7}, at_once=2, on_note=notes.append)
    assert [note.partition("longer: ")[2].partition(";")[0] for note in notes] == [
        "the network replaces its buffer '0.mean'"
    ]
    plain = train_in_turn(wanted, {0: 5, 1: 6, 2: 7})
    assert eager.keys() == plain.keys() == {"0.mean", "0.latest", "1.weight", "1.bias"}
    for name in plain:
        assert torch.allclose(eager[name], plain[name], atol=1e-4), name


UNREPEATABLE = pytest.mark.filterwarnings("ignore:.*does not have a deterministic implementation")


@pytest.mark.gpu
@UNREPEATABLE
@pytest.mark.parametrize("recipe", RECIPES)
def test_graphed_models_are_those_of_the_plain_loop(recipe: dict[str, Any]) -> None:
    # Adam's first steps are as long for a gradient that is all rounding, and batch normalisation makes many such
    recipe = {"network": "small_cnn" if "optimizer" in recipe else "resnet20"} | recipe
    captured = train_graphed(job("cuda", **recipe), {0: 5, 1: 6, 2: 7}, at_once=2)
    plain = train_in_turn(job("cuda", **recipe), {0: 5, 1: 6, 2: 7})
    for name in plain:
        assert torch.allclose(captured[name].float(), plain[name].float(), atol=1e-3), name


@pytest.mark.gpu
@pytest.mark.parametrize("network", ["resnet20", "vit"])
@pytest.mark.parametrize("n_images", [70, 65])  # an epoch that ends in a smaller batch, or in a joined one
def test_a_graphed_models_bits_do_not_depend_on_its_company(network: str, n_images: int) -> None:
    wanted = job("cuda", network=network, n_images=n_images)
    alone = train_graphed(wanted, {3: 9}, at_once=1)
    together = train_graphed(wanted, {1: 4, 3: 9, 5: 2}, at_once=3)
    assert all(torch.equal(alone[name][0], together[name][1]) for name in alone)


@pytest.mark.gpu
def test_graphed_training_resumes_to_the_same_bits(tmp_path: Path) -> None:
    whole = train_graphed(job("cuda", epochs=3), {0: 5, 1: 6})
    with pytest.raises(Stopped):
        train_graphed(
            job("cuda", epochs=3),
            {0: 5, 1: 6},
            checkpoints=TrainingCheckpoints(tmp_path, "d", every_s=0),
            on_epoch=stop,
        )
    resumed = train_graphed(job("cuda", epochs=3), {0: 5, 1: 6}, checkpoints=TrainingCheckpoints(tmp_path, "d"))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


WAITING = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        self.last = nn.Linear(768, n_classes)
    def forward(self, x):
        WAIT
        return self.last(x.flatten(1))
def build(input_shape, n_classes):
    return Net(n_classes)
"""


@pytest.mark.gpu
@pytest.mark.parametrize(
    "wait", ["x.mean().item()", "x[x.mean((1, 2, 3)) > 0]", "x.is_cuda and torch.cuda.current_stream().synchronize()"]
)
def test_waiting_network_trains_without_capture(wait: str) -> None:
    def of(line: str) -> TrainingJob:
        return job("cuda", network="module", options={"source": WAITING.replace("WAIT", line)})

    notes: list[str] = []
    eager = train_graphed(of(wait), {0: 5, 1: 6, 2: 7}, at_once=2, on_note=notes.append)
    assert len(notes) == 1
    assert "line 9 of the network's source" in notes[0]
    torch.cuda.empty_cache()
    torch.rand(1, device="cuda")
    captured = train_graphed(of("pass"), {0: 5, 1: 6, 2: 7}, at_once=2, on_note=notes.append)
    assert len(notes) == 1
    assert all(torch.equal(eager[name], captured[name]) for name in eager)


@pytest.mark.gpu
def test_networks_that_draw_random_numbers_are_not_graphed() -> None:
    assert can_graph(job("cuda"))
    assert not can_graph(job("cuda", network="mobilenet_v3_small"))
    assert not can_graph(job("cuda", n_images=20))


@pytest.mark.gpu
@UNREPEATABLE
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
def test_a_split_is_prepared_and_evaluated_on_cuda(tmp_path, make_competition, precision):
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
