"""What a competition takes, from its file alone: disk, network size, share of a preparation, time of a run."""

from itertools import pairwise
from pathlib import Path

import pytest

from lethe.competition.estimates import MAX_PARAMETERS, MIN_PARAMETERS, NETWORK_BYTES, describe_excess, estimate_disk
from lethe.competition.file import Network, parse_competition, read_competition_file
from lethe.competition.preparation_share import preparation_share
from lethe.competition.run_limits import RetrainingCost, limit_warnings, run_limit
from lethe.competition.sections import Limits
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
    guessed = estimate_disk(read_competition_file(EXAMPLES / "tofu-small.toml"))
    assert (guessed.models, guessed.outputs) == (None, None), "unknown sizes are not guessed"


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


MEASURED = RetrainingCost(time_s=3.0, cpu_s=2.0, start_cpu_s=0.02)


@pytest.mark.parametrize(
    ("limits", "retraining_time_s", "expected"),
    [
        ({"run_wall_time_s": 2.0}, 100.0, 2.0),
        ({"run_wall_time_s": 2.0}, 0.0, 2.0),
        ({}, 100.0, 20.0),
        ({}, 1.0, 5.0),
        ({"wall_time_s": 3.0}, 1.0, 3.0),
        ({"run_fraction_of_retraining": None, "wall_time_s": 60.0}, 100.0, 60.0),
    ],
    ids=["seconds below the floor", "unknown retraining", "share", "floor of the share", "all runs", "no share"],
)
def test_clock_limits_a_run_without_measured_processor_time(limits, retraining_time_s, expected):
    found = run_limit(Limits.model_validate(limits), RetrainingCost(retraining_time_s))
    assert (found.wall_time_s, found.cpu_time_s) == (expected, None)


@pytest.mark.parametrize(
    ("limits", "cpu_time_s", "wall_time_s"),
    [
        ({"run_start_time_s": 0.1}, 0.02 + 0.1 + 0.2 * 2.0, 5.2),
        ({"run_start_time_s": 0.0, "run_wall_time_floor_s": 30.0}, 0.02 + 0.2 * 2.0, 30.0),
        ({"run_start_time_s": 0.0, "run_cpu_time_s": 0.3}, 0.02 + 0.3, 5.0),
        ({"run_start_time_s": 0.0, "run_cpu_time_s": 9.0}, 0.02 + 0.2 * 2.0, 5.0),
        ({"run_start_time_s": 0.0, "run_wall_time_s": 2.0}, 0.02 + 0.2 * 2.0, 2.0),
        ({"run_fraction_of_retraining": None, "run_wall_time_s": 2.0}, None, 2.0),
    ],
    ids=["share and start", "clock's floor", "seconds below", "seconds above", "clock in seconds", "no share"],
)
def test_processor_time_is_the_share_and_the_start(limits, cpu_time_s, wall_time_s):
    found = run_limit(Limits.model_validate(limits), MEASURED)
    assert found.cpu_time_s == pytest.approx(cpu_time_s)
    assert found.wall_time_s == pytest.approx(wall_time_s)


@pytest.mark.parametrize(
    ("limits", "cost", "said"),
    [
        ({}, RetrainingCost(0.16), "fits into a run's limit: it takes 0.16 s, a run may take 5 s"),
        (
            {},
            RetrainingCost(9.0, cpu_s=0.5),
            "it takes 0.5 s of the processor in its fastest form, a run may take 1.1 s",
        ),
        ({"run_fraction_of_retraining": 1.0}, RetrainingCost(100.0), "fits into a run's limit"),
        ({}, RetrainingCost(9.0, cpu_s=0.5), "Lower [limits] run_start_time_s (now 1)"),
        ({"run_start_time_s": 0.02}, RetrainingCost(0.5, cpu_s=0.015), "so small that no limit binds"),
        ({"run_fraction_of_retraining": 1.0}, MEASURED, "fits into a run's limit"),
        ({"run_fraction_of_retraining": None}, RetrainingCost(), "run_fraction_of_retraining is not set"),
    ],
)
def test_limit_that_leaves_time_to_retrain_is_warned_of(limits, cost, said):
    (warning,) = limit_warnings(Limits.model_validate(limits), cost, n_models=1)
    assert said in warning


@pytest.mark.parametrize(
    "cost", [RetrainingCost(), RetrainingCost(5.1), RetrainingCost(100.0), RetrainingCost(0.2, cpu_s=1.3), MEASURED]
)
def test_limit_below_retraining_is_not_warned_of(cost: RetrainingCost) -> None:
    assert limit_warnings(Limits(), cost, n_models=1) == []


@pytest.mark.parametrize(("n_models", "n_warnings"), [(1, 0), (8, 1)])
def test_too_little_time_for_all_runs_is_warned_of(n_models: int, n_warnings: int) -> None:
    found = limit_warnings(Limits(wall_time_s=1.0, run_start_time_s=0.1), MEASURED, n_models=n_models)
    assert len(found) == n_warnings
    assert all("all 8 runs together have 1 s" in each for each in found)
