"""The least size of a network, from its options alone, beside what is built."""

import pytest

from lethe.competition.network_size import MAX_PARAMETERS, MIN_PARAMETERS, describe_excess
from lethe.networks.builders import build

LANGUAGE = {"width": 24, "layers": 3, "heads": 2, "hidden_width": 40, "context": 32}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mlp", {"hidden": [300, 300, 200]}),
        ("small_cnn", {"widths": [16, 64, 64]}),
        ("all_cnn", {"width": 24}),
        ("vit", {"width": 48, "depth": 3}),
        ("llama", LANGUAGE),
        ("gpt2", LANGUAGE),
    ],
)
def test_least_size_is_below_the_real_one_but_near(name: str, options: dict[str, object]) -> None:
    network = {"name": name, "options": options, "input_shape": [1, 8, 8], "n_classes": 4}
    if name in ("llama", "gpt2"):
        network |= {"task": "causal-lm", "vocabulary_size": 16}
    built = build(network)
    real = sum(value.numel() for value in (*built.parameters(), *built.buffers()))
    assert real / 5 < MIN_PARAMETERS[name](options) <= real


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("mlp", {"hidden": [200_000, 200_000]}, "at least 40,000,600,000 parameters"),
        ("mlp", {"hidden": [10**9]}, "at least 3,000,000,000"),
        ("mlp", {"hidden": [1] * 10_001}, "more than 10,000 layers"),
        ("small_cnn", {"widths": [20_000, 20_000]}, "parameters"),
        ("all_cnn", {"width": 10_000}, "parameters"),
        ("vit", {"depth": 10**9}, "parameters"),
        ("llama", LANGUAGE | {"context": 10**9}, "parameters"),
        ("resnet50", {"width_per_group": 10**9}, "width_per_group = 1000000000; at most 65,536"),
        ("resnet50", {"replace_stride_with_dilation": [float("nan")]}, "at most 65,536"),
    ],
)
def test_excess_is_named_without_building(name: str, options: dict[str, object], says: str) -> None:
    assert says in (describe_excess(name, options) or "")


@pytest.mark.parametrize(
    ("name", "options"),
    [("mlp", {"hidden": [8000, 8000]}), ("mlp", {"hidden": "wide"}), ("resnet18", {"stem": "small"})],
)
def test_other_networks_are_the_builders_to_refuse(name: str, options: dict[str, object]) -> None:
    assert describe_excess(name, options) is None
    assert MAX_PARAMETERS == 2**28
