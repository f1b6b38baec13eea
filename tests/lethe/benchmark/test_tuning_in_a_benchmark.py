"""`[tune]` in a benchmark file: searched on a split of its own, recorded, and used where results are reported."""

import json

import pytest

from lethe.benchmark.benchmark_file import InvalidBenchmarkFile
from lethe.benchmark.estimate import estimate
from lethe.benchmark.plan import read_plan
from lethe.benchmark.progress import benchmark_progress, put_benchmark
from lethe.benchmark.results import collect, tuned_entries
from lethe.benchmark.store import BenchmarkFolder, settled_method, study_file
from lethe.errors import InvalidInput
from tests.lethe.conftest import COMPETITION, execute

TUNED = """
slug = "tuned"
n_models = 4
methods = [
  "original",
  { method = "finetune", EPOCHS = 1 },
  { method = "finetune", name = "as it is", tune = false },
  { file = "mine.py" },
]
metrics = ["score", "retdev"]
[tune]
trials = 3
runs = 2
halvings = 0
objective = "retdev"
[[cell]]
name = "a"
competition = "tiny_competition.toml"
splits = { seed = 1 }
[[cell]]
name = "b"
competition = "tiny_competition.toml"
splits = { seed = 2 }
"""
MINE = """
import torch
STEP = 5.0  # lethe: tune STEP = log(0.0001, 0.001)
def unlearning(net, retain_loader, forget_loader, val_loader):
    for p in net.parameters():
        p.data += STEP * torch.randn_like(p)
"""


def write(folder, text=TUNED):
    (folder / "tiny_competition.toml").write_text(COMPETITION)
    (folder / "mine.py").write_text(MINE)
    (folder / "tuned.toml").write_text(text)
    return folder / "tuned.toml"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A tuned benchmark of two splits that was run, its folder, and what was said."""
    folder, said = tmp_path_factory.mktemp("tuned"), []
    path = write(folder)
    execute(path, folder / "out", said=said)
    return read_plan(path), BenchmarkFolder(folder / "out"), said


@pytest.mark.slow
def test_cells_that_differ_in_the_seed_share_a_search_on_another_split(run):
    plan, folder, _ = run
    (search,) = plan.search_cells
    assert search.key not in {cell.key for cell in plan.cells}
    assert search.competition.splits.seed not in {cell.competition.splits.seed for cell in plan.cells}
    seen = [
        json.loads((folder.split_dir(cell) / "manifest.json").read_text())["files"]["visible/forget.safetensors"]
        for cell in (*plan.cells, search)
    ]
    assert len({each["sha256"] for each in seen}) == 3


def test_chosen_constants_are_recorded_and_used(run):
    plan, folder, _ = run
    rows = collect(plan, folder)["cells"]["a"]["rows"]
    states = {name: row["tuning"]["state"] for name, row in rows.items() if "tuning" in row}
    assert states == {
        "original": "nothing to tune", "finetune EPOCHS=1": "tuned", "as it is": "untuned", "mine": "tuned",
    }  # fmt: skip
    mine = next(method for method in plan.methods if method.label == "mine")
    chosen = rows["mine"]["tuning"]
    assert chosen["settings"]["STEP"] <= 0.001  # its own 5.0 leaves nothing of the network
    assert chosen["chosen_trial"] > 0
    assert chosen["fresh"] < chosen["own_fresh"]
    used = settled_method(plan, folder, plan.cells[0], mine)
    assert f"STEP = {chosen['settings']['STEP']!r}" in used.files["unlearning.py"]
    assert folder.unit(plan.cells[0], used).n_runs == 4
    assert folder.unit(plan.cells[0], mine).n_runs == 0


def test_a_constant_that_the_file_sets_is_not_searched(run):
    plan, folder, _ = run
    chosen = collect(plan, folder)["cells"]["a"]["rows"]["finetune EPOCHS=1"]["tuning"]
    assert "EPOCHS" not in chosen["settings"]
    assert chosen["trials"] == 3
    assert chosen["work_epochs"] == pytest.approx(3 * 2 + 2 * 3)  # 3 trials of 2 runs; 2 fresh runs of 3 finalists


def test_finished_search_is_not_made_again(run):
    plan, folder, said = run
    assert sum("search for" in line and "chosen" in line for line in said) == 2
    again = []
    execute(plan.path, folder.root, said=again)
    assert again == []
    assert benchmark_progress(plan, folder).left_units == 0


def test_interrupted_search_leaves_its_method_open(run, tmp_path):
    plan, folder, _ = run
    empty = BenchmarkFolder(tmp_path)
    mine = next(method for method in plan.methods if method.label == "mine")
    assert settled_method(plan, empty, plan.cells[0], mine) is None
    (search,) = plan.search_cells
    file = study_file(plan, empty, search, mine)
    file.parent.mkdir(parents=True)
    study = json.loads(study_file(plan, folder, search, mine).read_text())
    file.write_text(json.dumps(study | {"ended": False}))
    assert settled_method(plan, empty, plan.cells[0], mine) is None


def test_chosen_constants_are_printed_as_entries_of_a_file(run):
    plan, folder, _ = run
    lines = list(tuned_entries(collect(plan, folder)))
    assert lines[0] == "# a"
    entry = lines[1]
    assert entry.startswith('{ method = "finetune", name = "finetune EPOCHS=1", ')
    again = TUNED.replace('{ method = "finetune", EPOCHS = 1 },', entry)
    (plan.path.parent / "again.toml").write_text(again)
    assert read_plan(plan.path.parent / "again.toml").methods[1].searched is False


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[tune]", "[tune]\nsplit_seed = 2", "split_seed 2 is that of cell 'b'"),
        ('objective = "retdev"', 'objective = "retdve"', "retdve"),
    ],
)
def test_search_that_cannot_be_is_refused(old, new, said, tmp_path):
    path = write(tmp_path, TUNED.replace(old, new))
    with pytest.raises(InvalidBenchmarkFile, match=said):
        read_plan(path)


def test_estimate_counts_the_search(run):
    plan, _, _ = run
    found = {row.name: row for row in estimate(plan).cells}
    # two methods: 3 trials of 2 runs, and 2 fresh runs of the 3 best and the own constants
    assert found["search for b"].runs == 2 * (3 * 2 + 4 * 2)
    assert found["search for b"].models == 2 * 2 + 1
    assert found["a"].runs == 4 * 4


def test_server_refuses_a_search(run):
    plan, _, _ = run
    with pytest.raises(InvalidInput, match="without --server"):
        put_benchmark(None, plan)
