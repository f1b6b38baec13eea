"""Each method takes its authors' steps, as far as the stored projections tell.

`python -m tests.golden.trajectories DIR` compares the full trajectories.
"""

import json

import numpy as np
import pytest

from lethe.methods.catalogue import method_info
from tests.golden.trajectories.__main__ import main
from tests.golden.trajectories.making import made_frame
from tests.golden.trajectories.recipes import recipe
from tests.golden.trajectories.run import run
from tests.golden.trajectories.trace import FOLDER, largest_difference, projection, read_stored

ROUNDING = 1e-7  # another processor rounds otherwise, and long training makes that grow
STORED = read_stored()


@pytest.mark.parametrize(("stored", "short"), STORED, ids=[f"{each.method}-{each.setting}" for each, _ in STORED])
def test_method_takes_its_authors_steps(stored, short):
    trace = run(recipe(stored), made_frame(), settled=bool(stored.info.get("settled")))
    assert largest_difference(short, trace) < ROUNDING


def test_a_digest_tells_a_step_that_differs():
    stored, short = next(pair for pair in STORED if pair[0].setting == "cadet_cosine_scaled")
    made = recipe(stored)
    made.constants["MOMENTUM"] = 0.89
    assert largest_difference(short, run(made, made_frame())) > 1e-3
    made.constants |= {"MOMENTUM": 0.9, "EPOCHS": 3}
    assert largest_difference(short, run(made, made_frame())) == float("inf")


def test_presets_name_constants_that_the_file_has():
    for stored, _ in STORED:
        info = method_info(recipe(stored).method)
        for preset in info.presets.values():
            assert preset.keys() <= {constant.name for constant in info.constants}


def test_recorded_results_are_of_all_that_is_stored():
    results = json.loads((FOLDER / "results.json").read_text("utf-8"))
    assert {each["setting"] for each in results} == {f"{stored.method}/{stored.setting}" for stored, _ in STORED}
    assert all(each["first"] is None and each["largest"] <= 1e-9 for each in results)


def test_command_compares_a_folder_of_trajectories(tmp_path, capsys):
    stored, _ = next(pair for pair in STORED if pair[0].setting == "ft_scaled")
    trace = run(recipe(stored), made_frame())
    weights, ends = (
        np.stack(trace.weights),
        {"final/weights": trace.final_weights, "final/buffers": trace.final_statistics},
    )
    digests = weights @ projection(weights.shape[1])
    np.savez(tmp_path / "frame.npz", **made_frame().arrays)
    folder = tmp_path / "finetune"
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps({name: dict(stored.info) for name in ("same", "other", "end")}))
    np.savez(folder / "same.npz", **ends, **{"digest/weights": digests})
    np.savez(folder / "other.npz", **ends, **{"digest/weights": digests, "step0003/weights": weights[2] + 1e-6})
    np.savez(folder / "end.npz", **ends | {"final/weights": weights[-1] + 0.5}, **{"digest/weights": digests[:-1]})
    assert main([str(tmp_path), "--json", str(tmp_path / "found.json")]) == 0
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["finetune/same"] == {"first": None, "final": 0.0}
    assert found["finetune/other"] == {"first": 3, "final": 0.0}
    assert found["finetune/end"] == {"first": 12, "final": pytest.approx(0.5)}
    assert "finetune other: first 3" in capsys.readouterr().out
