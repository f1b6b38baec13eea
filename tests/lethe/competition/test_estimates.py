"""The disk, the network size and the share of a preparation, from the competition file alone."""

from itertools import pairwise
from pathlib import Path

import pytest

from lethe.competition.estimates import MAX_PARAMETERS, MIN_PARAMETERS, NETWORK_BYTES, describe_excess, estimate_disk
from lethe.competition.file import Network, parse_competition, read_competition_file
from lethe.competition.preparation_share import preparation_share
from lethe.networks.builders import build
from tests.support.instance import competition_toml

EXAMPLES = Path(__file__).parents[3] / "examples" / "competitions"


def test_disk_of_a_known_network_and_dataset_is_told() -> None:
    digits = read_competition_file(EXAMPLES / "digits.toml")
    found = estimate_disk(digits.model_copy(update={"network": Network(name="resnet20")}))
    assert found.models == 2 * 513 * NETWORK_BYTES["resnet20"], "on each split the original and N retrained"
    # 100 forget, 719 test and as many retain examples: confidences (8 bytes), and losses (4) where metrics need them
    runs_of = {0: 8 * 100, 1: 8 * 100 + 4 * (100 + 2 * 1797 * 0.4)}
    assert found.outputs == pytest.approx(512 * runs_of[max(digits.report.capture_levels, default=0)], rel=0.01)


def test_kept_weights_are_counted_with_splits_and_submissions() -> None:
    digits = read_competition_file(EXAMPLES / "digits.toml").model_copy(update={"network": Network(name="resnet20")})
    kept = digits.model_copy(update={"report": digits.report.model_copy(update={"keep_weights": 4})})
    before, found = estimate_disk(digits), estimate_disk(kept)
    assert (before.models, before.outputs, found.models, found.outputs) != (None,) * 4
    assert (found.models or 0) - (before.models or 0) == 2 * 4 * NETWORK_BYTES["resnet20"], "the oracle's, twice"
    assert (found.outputs or 0) - (before.outputs or 0) == 4 * NETWORK_BYTES["resnet20"]
    unknown = kept.model_copy(update={"network": Network(name="mlp")})
    assert estimate_disk(unknown).outputs is None


def test_unknown_sizes_are_not_guessed() -> None:
    found = estimate_disk(read_competition_file(EXAMPLES / "tofu-small.toml"))
    assert (found.models, found.outputs) == (None, None)


@pytest.mark.parametrize("name", ["resnet20", "all_cnn", "vit", "resnet18"])
def test_known_size_is_that_of_the_network(name: str) -> None:
    network = {"name": name, "options": {}, "input_shape": [1, 32, 32], "n_classes": 10}
    built = sum(value.nbytes for value in build(network).state_dict().values())
    assert NETWORK_BYTES[name] == pytest.approx(built, rel=0.05)


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


@pytest.mark.parametrize("setup", ["reuse-n-1", "reuse-n-n"])
def test_share_grows_from_stage_to_stage(setup: str) -> None:
    file = parse_competition(competition_toml("digits"), source="digits.toml")
    file = file.model_copy(update={"scoring": file.scoring.model_copy(update={"setup": setup})})
    sets = ["retrained models", "oracle"] + (["original models"] if setup == "reuse-n-n" else [])
    told = [("", 0.0), ("starting", 0.0), ("original model", 0.5)]
    told += [(stage, progress) for stage in sets for progress in (0.1, 0.9)]
    told += [("measuring one retraining in the sandbox", 0.0)]
    shares = [preparation_share(file, stage=stage, progress=progress) for stage, progress in told]
    assert all(earlier <= later for earlier, later in pairwise(shares)), shares
    assert shares[0] == 0.0
    assert shares[-1] < 1.0
    assert shares[3] == pytest.approx(0.1 + 0.8 * 0.1 / len(sets))
