from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from lethe.data import stored_sets
from lethe.data.errors import DamagedSplit, SplitNotPrepared
from lethe.data.files import read_json, read_tensors
from lethe.data.stored_sets import StoredSet
from lethe.evaluation import image_evaluation
from lethe.evaluation.evaluators import BackgroundEvaluator, sample_evaluator
from lethe.evaluation.image_evaluation import NonFiniteOutputs, SplitEvaluator, load_original
from lethe.evaluation.model_outputs import read_outputs
from lethe.metrics.scoring.arrays import logit_scaled_confidences
from lethe.networks.builders import build, to_inputs
from lethe.preparation.prepare import prepare_split
from tests.lethe.conftest import competition
from tests.support.images import IN_ORDER

pytestmark = pytest.mark.usefixtures("trusted_network_source")


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("inference") / "public"
    prepare_split(competition(n_models=4), "public", out)
    return out


def read_weights(split: Path, change: float = 0.0) -> bytes:
    state = {name: value + change for name, value in load_original(split).items()}
    return safetensors.torch.save(state)


def test_outputs_are_those_of_a_plain_pass(split: Path) -> None:
    outputs = SplitEvaluator.load(split).evaluate(read_weights(split))
    network = read_json(split / "visible/network.json")
    net = build(network).eval()
    net.load_state_dict(load_original(split))

    def logits(path: str) -> tuple[np.ndarray, np.ndarray]:
        stored = StoredSet.read(split / path)
        with torch.no_grad():
            return net(to_inputs(stored.images, network)).numpy(), stored.labels.numpy()

    expected = logit_scaled_confidences(*logits("visible/forget.safetensors"))
    assert np.allclose(outputs.confidences, expected, atol=1e-5)
    for row, (path, accuracy) in enumerate(
        {
            "visible/retain.safetensors": outputs.retain_accuracy,
            "hidden/test.safetensors": outputs.test_accuracy,
        }.items()
    ):
        found, labels = logits(path)
        right = found.argmax(1) == labels
        assert accuracy == pytest.approx(right.mean())
        of_classes = [right[labels == label].mean() if (labels == label).any() else np.nan for label in range(10)]
        assert np.allclose(outputs.class_accuracy[row], of_classes, equal_nan=True)


def test_numbers_that_would_slow_a_pass_down_count_as_zero(split: Path) -> None:
    """A first layer of 1e-39, a last one of 1e38: what a CPU makes of it when it keeps denormals is not nothing."""
    state = {name: torch.zeros_like(value) for name, value in load_original(split).items()}
    first, *_, last = (name for name in state if name.endswith("weight"))
    state[first].fill_(1e-39)
    state[last][0] = 1e38  # of class 0 alone
    outputs = SplitEvaluator.load(split).evaluate_state(state)
    alike = np.zeros((1, 10), np.float32)
    assert (outputs.confidences == logit_scaled_confidences(alike, np.zeros(1, np.int64))).all()
    assert (torch.tensor([1e-39]) * 1e30).item() > 0  # outside, they are what they were


def test_bits_do_not_depend_on_threads_order_or_the_models_before(split: Path) -> None:
    evaluator = SplitEvaluator.load(split)
    first = evaluator.evaluate(read_weights(split))
    evaluator.evaluate(read_weights(split, change=0.1))
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        second = evaluator.evaluate(read_weights(split))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    fresh = SplitEvaluator.load(split).evaluate(read_weights(split))
    assert first.confidences.tobytes() == second.confidences.tobytes() == fresh.confidences.tobytes()


def test_sets_too_large_to_keep_are_streamed_to_the_same_bits(split: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = SplitEvaluator.load(split).evaluate(read_weights(split))
    monkeypatch.setattr(stored_sets, "RESIDENT_BYTES", 0)
    streamed = SplitEvaluator.load(split).evaluate(read_weights(split))
    assert kept.confidences.tobytes() == streamed.confidences.tobytes()
    assert kept.retain_accuracy == streamed.retain_accuracy


def coloured_sets() -> dict[str, StoredSet]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (70, 3, 8, 8), generator=generator, dtype=torch.uint8)
    numbers = torch.arange(70)
    return dict.fromkeys(("forget", "retain", "test"), StoredSet(images, numbers % 4, numbers, numbers))


def network_named(name: str, **options: Any) -> dict[str, Any]:
    return {
        "name": name,
        "options": options,
        "input_shape": [3, 8, 8],
        "n_classes": 4,
        "input_scale": [0.01, 0.02, 0.03],
    }


def test_streamed_colour_images_give_the_same_bits(monkeypatch):
    network = network_named("small_cnn")
    state = build(network).state_dict()
    kept = SplitEvaluator(network, coloured_sets(), batch_size=16)
    monkeypatch.setattr(stored_sets, "RESIDENT_BYTES", 0)
    streamed = SplitEvaluator(network, coloured_sets(), batch_size=16)
    for evaluator in (kept, streamed):
        for batch in evaluator._sets["forget"].images.in_order(16):
            assert batch.is_contiguous(memory_format=torch.channels_last)
    assert kept._sets["forget"].images.images.dtype == torch.float32  # the bytes are not kept beside
    outputs = [evaluator.evaluate_state(state).confidences.tobytes() for evaluator in (kept, streamed)]
    assert outputs[0] == outputs[1]


MAPS = """
from torch import nn
def build(input_shape, n_classes):
    first, last = nn.Conv2d(3, 8, 3), nn.Conv2d(8, n_classes, 1)
    return nn.Sequential(first, nn.ReLU(), last, nn.AdaptiveAvgPool2d(1), nn.Flatten())
"""


def test_bf16_keeps_a_last_convolution_in_float32() -> None:
    network = network_named("module", source=MAPS)
    evaluator = SplitEvaluator(network, coloured_sets(), precision="bf16")
    evaluator.evaluate_state(build(network).state_dict())
    seen: list[torch.dtype] = []
    last = [module for module in evaluator._net.modules() if isinstance(module, torch.nn.Conv2d)][-1]
    last.register_forward_hook(lambda *call: seen.append(call[2].dtype))
    evaluator.logits("forget")
    assert set(seen) == {torch.float32}


def test_positions_that_a_run_made_up_are_not_looked_up(tmp_path: Path) -> None:
    """Neither on the hidden sets nor on the sample, on which a local check evaluates."""
    network = {"name": "module", "options": {"source": IN_ORDER}}
    prepare_split(competition(n_models=4, network=network), "public", tmp_path)
    sample = tmp_path / "sample"
    for evaluator, state in (
        (SplitEvaluator.load(tmp_path), load_original(tmp_path)),
        (sample_evaluator(sample), read_tensors(sample / "original_model.safetensors")),
    ):
        expected = evaluator.evaluate(safetensors.torch.save(state)).confidences.tobytes()
        beyond = state | {"0.order": state["0.order"] + 10**6}
        assert evaluator.evaluate(safetensors.torch.save(beyond)).confidences.tobytes() == expected
        with pytest.raises(IndexError):
            evaluator.evaluate_state(beyond)


def test_background_evaluation_gives_the_same_bits_in_order(split: Path) -> None:
    evaluator = SplitEvaluator.load(split)
    weights = [read_weights(split, change=0.01 * number) for number in range(6)]
    expected = [evaluator.evaluate(one).confidences.tobytes() for one in weights]
    with BackgroundEvaluator(evaluator, waiting=1) as background:
        futures = [background.submit(one) for one in weights]
    assert [future.result().confidences.tobytes() for future in futures] == expected


def test_background_evaluation_hands_on_what_went_wrong(split: Path) -> None:
    state = {name: value * 1e30 for name, value in load_original(split).items()}
    with BackgroundEvaluator(SplitEvaluator.load(split)) as background:
        future = background.submit(safetensors.torch.save(state))
    with pytest.raises(NonFiniteOutputs):
        future.result()


@pytest.mark.parametrize("path", ["hidden/test.safetensors", "visible/retain.safetensors", "visible/network.json"])
def test_a_damaged_set_is_named_before_anything_is_scored(split: Path, path: str) -> None:
    good = (split / path).read_bytes()
    (split / path).write_bytes(good[:-2] + b"xx")
    try:
        with pytest.raises(DamagedSplit, match=f"{path}: wrong content"):
            SplitEvaluator.load(split)
    finally:
        (split / path).write_bytes(good)


def test_huge_weights_are_the_participants_fault(split: Path) -> None:
    state = {name: value * 1e30 for name, value in load_original(split).items()}
    with pytest.raises(NonFiniteOutputs, match="of 20 forget images"):
        SplitEvaluator.load(split).evaluate(safetensors.torch.save(state))


def test_saturated_logits_stay_within_the_statistics_range(split: Path) -> None:
    state = {name: value * 1e3 for name, value in load_original(split).items()}
    confidences = SplitEvaluator.load(split).evaluate(safetensors.torch.save(state)).confidences
    assert np.isfinite(confidences).all()
    assert np.abs(confidences).max() <= 103.7


def test_bf16_keeps_the_last_layer_in_float32(split: Path) -> None:
    network: Mapping[str, Any] = read_json(split / "visible/network.json")
    sets = {
        name: StoredSet.read(split / path)
        for name, path in (
            ("forget", "visible/forget.safetensors"),
            ("retain", "visible/retain.safetensors"),
            ("test", "hidden/test.safetensors"),
        )
    }
    evaluator = SplitEvaluator(network, sets, precision="bf16")
    rough = evaluator.evaluate_state(load_original(split))
    exact = SplitEvaluator.load(split).evaluate_state(load_original(split))
    assert 0 < np.abs(rough.confidences - exact.confidences).max() < 1.0
    logits = evaluator.logits("forget")
    assert not torch.equal(logits, logits.bfloat16().float())


def test_bf16_uses_each_models_own_weights(split: Path) -> None:
    network = read_json(split / "visible/network.json")
    stored = StoredSet.read(split / "visible/forget.safetensors")
    evaluator = SplitEvaluator(network, dict.fromkeys(("forget", "retain", "test"), stored), precision="bf16")
    first = evaluator.evaluate_state(load_original(split))
    second = evaluator.evaluate(read_weights(split, change=0.2))
    assert np.abs(first.confidences - second.confidences).max() > 0.01


def test_an_unprepared_split_is_named(tmp_path: Path) -> None:
    with pytest.raises(SplitNotPrepared, match=r"manifest\.json does not exist"):
        SplitEvaluator.load(tmp_path)


def test_damaged_outputs_are_named(split: Path) -> None:
    path = split / "hidden/retrained/outputs.safetensors"
    good = path.read_bytes()
    path.write_bytes(good[:-8] + bytes(8))
    try:
        with pytest.raises(DamagedSplit, match=r"hidden/retrained/outputs\.safetensors: wrong content"):
            read_outputs(split)
    finally:
        path.write_bytes(good)


class HeadFirst(torch.nn.Module):
    """Names its head before what comes before it."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(8, 10)
        self.body = torch.nn.Sequential(torch.nn.Conv2d(1, 8, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())


def test_exact_layer_is_the_one_with_an_output_per_class() -> None:
    net = HeadFirst()
    image_evaluation.keep_last_layer_exact(net, 10)
    assert type(net.head) is not torch.nn.Linear
    assert type(net.body[0]) is torch.nn.Conv2d
