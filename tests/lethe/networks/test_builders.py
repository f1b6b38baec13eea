import math
import resource
from collections.abc import Iterator

import pytest
import torch

from lethe.networks.builders import TRUST_SOURCE, build, limit_parameters, to_inputs


def describe(name: str, shape: tuple[int, int, int], **options: object) -> dict[str, object]:
    return {"name": name, "options": options, "input_shape": list(shape), "n_classes": 7}


@pytest.mark.parametrize(
    ("name", "shape", "options"),
    [
        ("mlp", (1, 8, 8), {}),
        ("mlp", (3, 4, 4), {"hidden": [5, 6]}),
        ("small_cnn", (1, 8, 8), {}),
        ("small_cnn", (2, 28, 28), {"widths": [4, 8]}),
        ("resnet18", (3, 32, 32), {}),
        ("resnet18", (1, 8, 8), {"stem": "small"}),
        ("resnet20", (1, 28, 28), {}),
        ("all_cnn", (3, 16, 16), {"width": 8}),
        ("vit", (1, 8, 8), {"width": 24, "depth": 2}),
        ("vit_b_16", (1, 32, 32), {}),
    ],
)
def test_build_gives_one_logit_a_class(name: str, shape: tuple[int, int, int], options: dict[str, object]) -> None:
    net = build(describe(name, shape, **options)).eval()
    with torch.no_grad():
        assert net(torch.randn(2, *shape)).shape == (2, 7)


def test_resnet18_has_the_names_of_torchvisions() -> None:
    net = build({"name": "resnet18", "options": {}, "input_shape": [3, 32, 32], "n_classes": 10})
    state = net.state_dict()
    assert state["conv1.weight"].shape == (64, 3, 7, 7)
    assert state["fc.weight"].shape == (10, 512)


def test_resnet110_has_109_convolutions_and_one_linear_layer() -> None:
    net = build(describe("resnet110", (3, 32, 32)))
    assert sum(isinstance(module, torch.nn.Conv2d) for module in net.modules()) == 109
    assert sum(parameter.numel() for parameter in net.parameters()) == pytest.approx(1.73e6, rel=0.01)


def test_tiny_vit_takes_small_grey_pictures() -> None:
    pytest.importorskip("timm")
    net = build(describe("tiny_vit", (1, 32, 32))).eval()
    with torch.no_grad():
        assert net(torch.randn(1, 1, 32, 32)).shape == (1, 7)
    assert sum(parameter.numel() for parameter in net.parameters()) == pytest.approx(10.5e6, rel=0.02)


@pytest.mark.parametrize("trusted", [None, "", "0", "yes"])
def test_source_of_a_network_is_not_run_unasked(trusted, monkeypatch, tmp_path):
    ran = tmp_path / "ran"
    source = f"open({str(ran)!r}, 'w')\ndef build(shape, n): pass"
    monkeypatch.delenv(TRUST_SOURCE, raising=False)
    if trusted is not None:
        monkeypatch.setenv(TRUST_SOURCE, trusted)
    with pytest.raises(ValueError, match=f"would run here with your rights.*{TRUST_SOURCE}=1"):
        build(describe("module", (1, 4, 4), source=source))
    assert not ran.exists()


@pytest.fixture
def at_most_1000() -> Iterator[None]:
    limit_parameters(1000)
    yield
    limit_parameters(None)


@pytest.mark.usefixtures("at_most_1000")
@pytest.mark.parametrize("hidden", [[200_000, 200_000], [8000, 8000], [1] * 200_000])
def test_network_beyond_the_limit_takes_no_memory(hidden: list[int]) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=r"(more than [0-9,]+ parameters .* allowed here are 1,000)|alloc"):
        build(describe("mlp", (1, 8, 8), hidden=hidden))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024, "KiB"
    build(describe("mlp", (1, 2, 2), hidden=[8]))


@pytest.mark.usefixtures("trusted_network_source")
def test_organisers_module_is_built_from_its_source() -> None:
    source = """
from torch import nn

def build(input_shape, n_classes, width=4):
    channels, height, across = input_shape
    inner = nn.Linear(channels * height * across, width)
    return nn.Sequential(nn.Flatten(), inner, nn.Tanh(), nn.Linear(width, n_classes))
"""
    net = build(describe("module", (1, 4, 4), source=source, width=6))
    assert net(torch.zeros(2, 1, 4, 4)).shape == (2, 7)


@pytest.mark.usefixtures("trusted_network_source")
@pytest.mark.parametrize(
    ("network", "message"),
    [
        (describe("resnet19", (3, 32, 32)), "unknown network 'resnet19'"),
        (describe("mlp", (3, 32, 32), layers=3), "no option 'layers': allowed are hidden"),
        (describe("mlp", (3, 0, 32)), "input_shape"),
        ({**describe("mlp", (1, 8, 8)), "n_classes": 1}, "n_classes must be at least 2"),
        (describe("vit", (1, 28, 28), patch=5), "patch must divide"),
        (describe("tiny_vit", (3, 28, 28)), "multiples of|32, 64"),
        (describe("tiny_vit", (3, 32, 32), model="local-dir:/etc"), "timm.s TinyViT networks"),
        (describe("resnet18", (3, 8, 8), stem="large"), "'imagenet' or 'small'"),
        (describe("module", (1, 8, 8), source="x = 1"), "no function 'build'"),
        (describe("module", (1, 8, 8)), "needs `source`: Python text that defines build.*; it is missing"),
        (describe("module", (1, 8, 8), source=3), "needs `source`: .*; it is a value of type int"),
        (describe("module", (1, 8, 8), source="x ="), "`source` is not Python: invalid syntax .*line 1"),
    ],
)
def test_build_names_what_is_wrong(network: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(network)


def test_to_inputs_scales_then_shifts_and_leaves_the_bytes() -> None:
    images = torch.tensor([[[[0, 255]]]], dtype=torch.uint8)
    inputs = to_inputs(images, {"input_scale": 2 / 255, "input_shift": -1.0})
    assert inputs.dtype == torch.float32
    assert torch.allclose(inputs.flatten(), torch.tensor([-1.0, 1.0]))
    assert images.flatten().tolist() == [0, 255]


def test_to_inputs_takes_one_number_a_channel() -> None:
    images = torch.full((1, 2, 1, 1), 10, dtype=torch.uint8)
    inputs = to_inputs(images, {"input_scale": [1.0, 0.5], "input_shift": [0.0, 1.0]})
    assert inputs.flatten().tolist() == [10.0, 6.0]


def test_small_cnn_starts_near_chance() -> None:
    torch.manual_seed(0)
    logits = build(describe("small_cnn", (1, 8, 8)))(torch.randn(64, 1, 8, 8))
    loss = torch.nn.functional.cross_entropy(logits, torch.arange(64) % 7)
    assert loss.item() == pytest.approx(math.log(7), abs=0.3)
