"""What a benchmark file asks for, and what is wrong with one."""

import json
from pathlib import Path

import pytest

from lethe.benchmark.benchmark_file import InvalidBenchmarkFile, parse_benchmark
from lethe.benchmark.estimate import estimate
from lethe.benchmark.plan import read_plan, with_recipe
from lethe.benchmark.results import FORMAT, read_cells, write_finished_cells
from lethe.errors import InvalidCompetitionFile, InvalidInput
from tests.lethe.conftest import BENCHMARK
from tests.support.towns import towns_toml, write_towns

TINY = 'competition = "tiny_competition.toml"\n'


def another_cell(path, override=""):
    """Return both cells of the benchmark file, to which one of the same competition is added."""
    path.write_text(f'{path.read_text()}[[cell]]\nname = "b"\n{TINY}{override}\n')
    return read_plan(path).cells


@pytest.mark.parametrize(
    ("override", "is_equal"),
    [
        ("", True),
        ('splits = { opens_with = "both" }', True),  # when splits are prepared changes none of them
        ('network = { name = "mlp", hidden = [13] }', False),
        ("training = { epochs = 5 }", False),
        ('recipe = "cutmix"', False),
        ("seeds = 4", False),
    ],
)
def test_equal_cells_share_a_key_whatever_their_name(write_benchmark, override, is_equal):
    first, second = another_cell(write_benchmark(), override)
    assert (first.key == second.key) is is_equal
    assert first.name != second.name


def test_methods_and_networks_take_constants_presets_and_options(write_benchmark):
    path = write_benchmark()
    (path.parent / "broken.py").write_text("SHARE = 0.5\n\n\ndef unlearning(*_):\n    pass\n")
    text = path.read_text().replace('{ file = "broken.py" }', '{ file = "broken.py", SHARE = 0.25 }')
    path.write_text(
        text.replace("methods = [", 'methods = [{ method = "scrub", preset = "large-scale", EPOCHS = 2 }, ')
    )
    _, cell = another_cell(path, 'network = { name = "mlp", hidden = [7] }')
    assert (cell.competition.network.options, cell.competition.n_models) == ({"hidden": [7]}, 4)
    scrub, _, finetune, own = read_plan(path).methods
    assert (finetune.label, "LR = 0.05" in finetune.files["unlearning.py"]) == ("finetune LR=0.05", True)
    assert scrub.label == "scrub preset=large-scale EPOCHS=2"
    assert (scrub.constants["ALPHA"], scrub.constants["EPOCHS"], scrub.constants["T"]) == (0.001, 2, 4.0)
    assert "preset" not in scrub.constants
    assert "\nALPHA = 0.001" in scrub.files["unlearning.py"]
    assert (own.label, own.constants) == ("broken SHARE=0.25", {"SHARE": 0.25})
    assert own.files["unlearning.py"].startswith("SHARE = 0.25\n")
    path.write_text(path.read_text().replace("SHARE = 0.25", "SHAPE = 0.25"))
    with pytest.raises(InvalidBenchmarkFile, match=r"broken\.py has no constant 'SHAPE'; there are SHARE"):
        read_plan(path)


def test_early_stop_halves_the_epochs():
    assert with_recipe({"epochs": 7, "milestones": [2, 5]}, "early-stop") == {"epochs": 4, "milestones": [2]}
    assert with_recipe({"epochs": 8}, "both") == {"epochs": 4, "mixing": "cutmix"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"original"', '"finetun"', "there is no method 'finetun'; there are finetune"),
        ("LR = 0.05", "RATE = 0.05", "no constant 'RATE'"),
        ("LR = 0.05", 'LR = "fast"', "LR must be a finite number"),
        ('"accuracy_gap"', '"relearn_time"', "relearn_time needs weights (level 4), and keep_weights is 0"),
        ('"accuracy_gap"', '"acuracy_gap"', "no metric is called 'acuracy_gap'"),
        ("n_models = 4", "n_models = 4\nseeds = 3", "seeds must be 1 or n_models"),
        ("[[cell]]", "[[cell]]\nseeds = 3", "seeds must be 1 or n_models"),
        ("n_models = 4", "n_models = 4\nmodels = 3", "models: is not known"),
        ('"original"', '"original", "original"', "method 'original' is there twice"),
        ("[[cell]]", '[tables]\ngroups = ["klom"]\n[[cell]]', "'klom', which is not among metrics"),
    ],
)
def test_a_wrong_value_is_named(old, new, said):
    with pytest.raises(InvalidBenchmarkFile) as caught:
        parse_benchmark(BENCHMARK.replace(old, new, 1))
    assert said in caught.value.detail


def test_a_wrong_file_or_override_is_named_with_its_cell(write_benchmark):
    path = write_benchmark()
    text = path.read_text()
    path.write_text(text.replace("tiny_competition", "other"))
    with pytest.raises(InvalidBenchmarkFile, match=r"cell 1 \(other.toml\): the competition file cannot be read"):
        read_plan(path)
    path.write_text(text + "training = { epochs = 0 }\n")
    with pytest.raises(InvalidCompetitionFile, match=r"cell 1 .*: training\.epochs"):
        read_plan(path)
    path.write_text(text.replace('"accuracy_gap"', '"forget_quality"'))
    with pytest.raises(InvalidBenchmarkFile, match="forget_quality needs arrays of level 5, which no cell has"):
        read_plan(path)
    path.write_text(text)
    (path.parent / "broken.py").unlink()
    with pytest.raises(InvalidBenchmarkFile, match=r"method file .*broken\.py cannot be read"):
        read_plan(path)


def test_the_estimate_counts_equal_cells_once(write_benchmark):
    path = write_benchmark()
    alone = estimate(read_plan(path))
    another_cell(path)
    both = estimate(read_plan(path))
    assert len(both.cells) == 2
    assert (both.runs, both.time_s) == (alone.runs, alone.time_s)
    assert alone.runs == 12
    assert alone.time_s > 0


TEXT_CELL = '[[cell]]\nname = "towns"\ncompetition = "towns.toml"\n'


def test_a_cell_stores_what_its_kind_of_task_can_have(write_benchmark, tmp_path):
    path = write_benchmark()
    (tmp_path / "towns.toml").write_text(towns_toml("towns"))
    before = read_plan(path).cells[0].key
    asked = path.read_text().replace('"accuracy_gap"', '"accuracy_gap", "forget_quality"') + TEXT_CELL
    path.write_text(asked)
    images, text = read_plan(path).cells
    assert images.key == before
    assert {"accuracy_gap", "retdev"} <= {each.id for each in images.competition.report.metrics}
    assert [each.id for each in text.competition.report.metrics] == ["forget_quality", "rte"]
    assert text.competition.report.capture_levels == (5,)


EXAMPLES = Path(__file__).parents[3] / "examples/benchmarks"


def test_text_cells_are_estimated_without_their_files():
    found = estimate(read_plan(EXAMPLES / "tofu.toml"), device="cuda")
    layer = 4 * 2048**2 + 2 * 2048 * 8192 + 6 * 2048 + 8192 + 2048  # Phi-1.5: attention, feed-forward, biases, norm
    weights = 2 * 51_200 * 2048 + 51_200 + 24 * layer + 2 * 2048
    model_s = 6 * weights * 65.3 * 4000 * 0.9 * 5 / 1e14
    assert found.is_whole
    for cell in found.cells:
        assert cell.training_s == pytest.approx(33 * model_s, rel=0.2)  # and evaluation
        assert cell.disk_bytes == pytest.approx(17 * 4 * weights, rel=0.01)


def test_a_text_cell_is_estimated_from_its_files(write_benchmark, tmp_path):
    path = write_benchmark()
    path.write_text(path.read_text() + TEXT_CELL)

    def found(root, **options):
        (tmp_path / "towns.toml").write_text(towns_toml(root, **options))
        return estimate(read_plan(path)).cells[1]

    assert found("towns").training_s is None
    assert f"{Path.cwd()}/towns has no file questions.jsonl" in found("towns").note
    root = write_towns(tmp_path / "towns")
    few, many = (found(root, epochs=epochs).training_s for epochs in (4, 400))
    assert few < many < 100 * few


def test_a_competition_file_with_the_former_name_of_scoring_is_taken(write_benchmark):
    path = write_benchmark()
    plan = read_plan(path)
    source = path.parent / "tiny_competition.toml"
    source.write_text(source.read_text() + "\n[metric]\ndelta = 0.25\n")
    former = read_plan(path)
    assert former.cells[0].competition.scoring.delta == 0.25
    assert former.cells[0].competition.scoring.setup == plan.cells[0].competition.scoring.setup


FILES = sorted(EXAMPLES.glob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_is_valid(path):
    plan = read_plan(path)
    assert plan.file.slug == path.stem
    assert len({cell.key for cell in plan.cells}) == len(plan.cells)


def content(**cells):
    made = {name: {"rows": {method: {} for method in methods}} for name, methods in cells.items()}
    return {"format": FORMAT, "benchmark_sha256": "1", "methods": [{"name": "a"}, {"name": "b"}], "cells": made}


def test_finished_cells_are_written_and_joined(tmp_path):
    all_cells = content(one=("a", "b"), two=("a",), three=("a", "b", "exact retraining"))
    assert [path.name for path in write_finished_cells(all_cells, tmp_path)] == ["one.json", "three.json"]
    assert set(read_cells(tmp_path)["cells"]) == {"one", "three"}


def test_cells_of_another_benchmark_are_not_joined(tmp_path):
    write_finished_cells(content(one=("a", "b")), tmp_path)
    (tmp_path / "x.json").write_text(json.dumps(content(x=("a", "b")) | {"benchmark_sha256": "2"}))
    with pytest.raises(InvalidInput, match="different benchmark files"):
        read_cells(tmp_path)
