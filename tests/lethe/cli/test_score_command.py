"""`lethe score` on files of arrays."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from lethe.api.score_inputs import load_outputs, save_outputs
from lethe.cli.main import build_app
from lethe.metrics.scoring.attacks.family import AttackFamily
from lethe.metrics.scoring.score import ModelOutputs, score

runner = CliRunner()


def draw(seed, n_models=32, shift=0.0):
    rng = np.random.default_rng(seed)
    return ModelOutputs(
        rng.normal(shift, 1.5, (n_models, 6)), rng.uniform(0.9, 1, n_models), rng.uniform(0.7, 0.8, n_models)
    )


@pytest.fixture
def files(tmp_path):
    for name, outputs in (("U", draw(0, shift=0.5)), ("R", draw(1)), ("O", draw(2))):
        save_outputs(tmp_path / f"{name}.npz", outputs)
    return tmp_path


def run(files, *options):
    sides = ("--unlearned", str(files / "U.npz"), "--retrained", str(files / "R.npz"))
    return runner.invoke(build_app(), ["score", *sides, *options])


def test_json_is_the_score_of_the_arrays(files):
    result = run(files, "--json")
    assert result.exit_code == 0, result.output
    expected = score(draw(0, shift=0.5), draw(1))
    found = json.loads(result.stdout)
    assert found["final_score"] == expected.final_score
    assert found["epsilon"] == expected.epsilon.tolist()
    assert found["interval"] is None


@pytest.mark.parametrize("attacks", ["reference", "exact", "disentangled"])
def test_every_family_can_be_chosen_and_has_an_interval(files, attacks):
    found = json.loads(run(files, "--attacks", attacks, "--bootstrap", "20", "--json").stdout)
    assert found["attacks"] == attacks
    low, high = found["interval"]
    assert low <= found["final_score"] <= high


def test_without_accuracies_forgetting_quality_alone_is_given(files):
    for name in "UR":
        save_outputs(files / f"{name}.npz", ModelOutputs(load_outputs(files / f"{name}.npz").confidences))
    found = json.loads(run(files, "--json").stdout)
    assert found["final_score"] is None
    assert 0.0 < found["forgetting_quality"] <= 1.0


def test_an_oracle_adds_the_fraction_of_it(files):
    oracle = str(files / "O.npz")
    found = json.loads(run(files, "--oracle", oracle, "--bootstrap", "20", "--json").stdout)
    assert found["fraction_of_oracle"] == pytest.approx(found["final_score"] / found["oracle_score"])
    assert found["leaked"] is False


def test_a_table_is_printed_for_people(files):
    result = run(files)
    assert result.exit_code == 0
    assert "forgetting quality" in result.stdout


def test_a_picture_is_written(files):
    picture = files / "out.png"
    assert run(files, "--plot", str(picture)).exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_several_experiments_are_aggregated(files):
    save_outputs(files / "R.npz", draw(1, n_models=8))
    found = json.loads(run(files, "--setup", "reuse-n-n", "--experiments", "4", "--json").stdout)
    assert (found["n_models"], len(found["experiments"])) == (8, 4)
    assert found["interval"][0] < found["final_score"] < found["interval"][1]


def test_the_full_setup_divides_both_files(files):
    found = json.loads(run(files, "--setup", "full", "--experiments", "4", "--json").stdout)
    assert (found["n_models"], len(found["experiments"])) == (8, 4)


def test_the_bootstrap_setup_takes_the_files_as_its_pool(files):
    options = ("--setup", "bootstrap", "--experiments", "3", "--models", "16", "--json")
    found = json.loads(run(files, *options).stdout)
    assert (found["n_models"], found["n_experiments"]) == (16, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--setup", "twice"), "unknown setup 'twice'"),
        (("--experiments", "5"), "do not divide into 5"),
        (("--experiments", "2", "--bootstrap", "20"), "--bootstrap belongs to a single experiment"),
        (("--plot", "/nowhere/out.png"), "picture cannot be written to /nowhere/out.png"),
        (("--bootstrap", "5"), "at least 20 resamples"),
    ],
)
def test_a_wrong_option_is_one_sentence_and_status_1(files, options, message):
    result = run(files, *options)
    assert result.exit_code == 1
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_an_unknown_family_of_attacks_is_answered_with_those_there_are(files):
    result = run(files, "--attacks", "strongest")
    assert result.exit_code == 2
    assert all(family.value in result.stderr for family in AttackFamily)
