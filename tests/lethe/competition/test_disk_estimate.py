"""The disk that a competition takes, from its file alone."""

from pathlib import Path

import pytest

from lethe.competition.estimates import NETWORK_BYTES, estimate_disk
from lethe.competition.file import Network, read_competition_file
from lethe.networks.builders import build

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
