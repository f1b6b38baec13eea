"""`lethe check` in a child process: warnings, own file names, a short log, how good the estimate is."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.data.stored_sets import StoredSet
from lethe.evaluation.shard_outputs import ShardOutputs
from tests.lethe.conftest import competition

RUNNER = CliRunner()
pytestmark = pytest.mark.usefixtures("quick_children")
SIGNATURE = "def unlearning(net, retain_loader, forget_loader, val_loader):\n"


@pytest.fixture
def kit(prepared: Path, tmp_path: Path) -> Path:
    """A starter kit of the prepared split's sample, with outputs of retrained models that scatter."""
    data = tmp_path / "kit" / "data"
    data.mkdir(parents=True)
    for path in (prepared / "sample").iterdir():
        (data / path.name).write_bytes(path.read_bytes())
    file = competition()
    about = {
        "n_models": 5,
        "run_wall_time_s": 30,
        "limits": file.limits.model_dump(mode="json"),
        "submissions": file.submissions.model_dump(mode="json"),
        "scoring": file.scoring.model_dump(mode="json"),
    }
    (data / "kit.json").write_text(json.dumps(about))
    n_forget = len(StoredSet.read(data / "forget.safetensors").labels)
    draw = np.random.default_rng(0)
    accuracy = np.full(8, 0.9)
    outputs = ShardOutputs(draw.normal(2, 2, (8, n_forget)), accuracy, accuracy, wall_time_s=np.zeros(8))
    (data / "retrained_outputs.safetensors").write_bytes(outputs.to_bytes())
    return tmp_path / "kit"


def check(kit: Path, code: str, *options: str) -> tuple[int, str]:
    path = kit / "my idea.py"
    path.write_text(code)
    words = ["check", str(path), "--kit", str(kit), "--sandbox", "none", "--runs", "4", *options]
    done = RUNNER.invoke(build_app(), words)
    return done.exit_code, done.stdout


def test_returned_value_that_counts_for_nothing_is_warned_of(kit: Path) -> None:
    status, shown = check(kit, SIGNATURE + "    return {'net': net}\n", "--json")
    assert status == 0
    (warning,) = json.loads(shown)["warnings"]
    assert "unlearning returned a dict" in warning
    assert json.loads(check(kit, SIGNATURE + "    return net\n", "--json")[1])["warnings"] == []


def test_failure_names_the_participant_s_own_file(kit: Path) -> None:
    status, shown = check(kit, SIGNATURE + "    for i in range(900): print('line', i)\n    1 / 0\n")
    assert status == 3
    assert "my idea.py, line 3" in shown
    assert "submission.py" not in shown
    assert "lines left out" in shown
    assert all(part in shown for part in ("line 0\n", "line 899\n", "ZeroDivisionError"))
    assert "line 400\n" not in shown


def test_estimate_stands_beside_that_of_exact_retraining(kit: Path) -> None:
    shown = " ".join(check(kit, SIGNATURE + "    return None\n")[1].split())
    assert all(part in shown for part in ("ESTIMATE", "too few to compare entries, which needs 16"))
    facts = json.loads(check(kit, SIGNATURE + "    return None\n", "--json")[1])
    assert facts["estimated_from"] == 4
    assert facts["oracle_estimate"] is not None
    assert facts["share_of_oracle"] is None, "four models put entries into the wrong order"
    few = json.loads(check(kit, SIGNATURE + "    return None\n", "--runs", "5", "--json")[1])
    assert few["oracle_estimate"] is None, "eight retrained models make no two sets of five"


def test_score_is_explained_beside_the_check_before_and_fine_tuning(kit: Path) -> None:
    forgets_nothing = SIGNATURE + "    return None\n"
    first = json.loads(check(kit, forgets_nothing, "--json")[1])["explanation"]
    assert first["differences"] == {}
    assert sum(first["costs"].values()) == pytest.approx(1.0)
    stored = (kit / "data" / "retrained_outputs.safetensors").read_bytes()
    (kit / "data" / "finetuned_outputs.safetensors").write_bytes(stored)
    shown = check(kit, forgets_nothing)[1]
    assert "against the check before: score +0.0000" in shown
    assert "against fine-tuning: score -" in shown
    assert f"advice: {first['advice']}" in shown
    foreign, mine = kit / "data" / "last_check.json", kit.parent / "mine.txt"
    mine.write_text('{"n_models": 5, "parts": {"forgetting_quality": "a", "retain_ratio": 1, "test_ratio": 1}}')
    foreign.unlink()
    foreign.symlink_to(mine)
    after = json.loads(check(kit, forgets_nothing, "--json")[1])["explanation"]
    assert list(after["differences"]) == ["fine-tuning"], "a damaged file is as none"
    assert mine.read_text().endswith('"test_ratio": 1}}'), "a link in a foreign kit is not followed to write"
    again = json.loads(check(kit, forgets_nothing, "--json")[1])["explanation"]
    assert list(again["differences"]) == ["the check before", "fine-tuning"], "it was replaced by a file of one's own"
