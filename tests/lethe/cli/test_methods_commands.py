"""`lethe methods`: list, show, stitch, run."""

import json
import zipfile

import pytest
import typer
from typer.testing import CliRunner

from lethe.cli import methods_commands
from lethe.methods.catalogue import method_ids, method_source

runner = CliRunner()
pytestmark = pytest.mark.usefixtures("quick_children")


def invoke(*arguments):
    app = typer.Typer()
    methods_commands.register_commands(app)
    return runner.invoke(app, ["methods", *map(str, arguments)])


def test_list_names_every_method():
    listed = json.loads(invoke("list", "--json").stdout)
    assert [method["id"] for method in listed] == [*method_ids(), *method_ids("causal-lm")]
    text = invoke("list").stdout
    assert all(method_id in text for method_id in method_ids())


def test_show_tells_what_a_method_does_its_ranges_and_its_code():
    text = invoke("show", "scrub").stdout
    assert "SCRUB: move away from the original network" in text
    assert "for each retain batch: step on GAMMA * ce" in text
    assert "log(1e-05, 0.1)" in text
    assert json.loads(invoke("show", "scrub", "--json").stdout)["id"] == "scrub"
    assert invoke("show", "ssd", "--code").stdout == method_source("ssd")
    assert "\nALPHA = 3.0  #" in invoke("show", "ssd", "--set", "ALPHA=3").stdout


def test_stitch_writes_an_archive(tmp_path):
    out = tmp_path / "stitched.zip"
    result = json.loads(invoke("stitch", "msg", "cfw", "-o", out, "--match-lr", "--json").stdout)
    assert result["kind"] == "phases"
    with zipfile.ZipFile(out) as archive:
        assert "loss_scale" in archive.read("unlearning.py").decode()


def test_tune_finds_settings_on_a_split(prepared, tmp_path):
    path = tmp_path / "study.json"
    result = invoke(
        "tune", "finetune", "--split", prepared, "-n", "4", "--budget-epochs", "0.001", "--study", path, "--json"
    )
    assert result.exit_code == 0, result.exception
    found = json.loads(result.stdout)
    assert set(found["best"]["settings"]) == {"LR", "EPOCHS", "ANNEALING", "WEIGHT_DECAY"}
    assert json.loads(path.read_text())["trials"] == [found["best"]]


def test_own_file_runs_and_a_fixed_constant_is_not_searched(prepared, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(method_source("finetune"))
    facts = json.loads(invoke("run", mine, "--split", prepared, "--set", "EPOCHS=2", "-n", "2", "--json").stdout)
    assert len(facts["runs"]) == 2
    assert facts["runs"][0]["distance"] > 0
    path = tmp_path / "study.json"
    asked = ("tune", mine, "--split", prepared, "-n", "4", "--trials", "2", "--set", "EPOCHS=2", "--study", path)
    found = json.loads(invoke(*asked, "--json").stdout)
    assert set(found["best"]["settings"]) == {"LR", "ANNEALING", "WEIGHT_DECAY"}
    missing = invoke("run", tmp_path / "no.py", "--split", prepared).exception
    assert "no.py cannot be read" in str(missing)
    unknown = invoke("tune", "finetune", "--split", prepared, "--search", "genetic").exception
    assert "random, grid, tpe" in str(unknown)
