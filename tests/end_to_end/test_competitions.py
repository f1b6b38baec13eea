"""Whole plays on a real instance: an automated participant's, one of three tasks, and a benchmark whose worker dies."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import copytree

import pytest
from typer.testing import CliRunner

from lethe.benchmark import progress
from lethe.benchmark.plan import read_plan
from lethe.cli.main import build_app
from lethe.client.api import LetheClient
from lethe.client.bundle import check, read, unpack
from lethe.reports.benchmark_tables import benchmark_tables
from tests.end_to_end.conftest import TOML, Instance, competition_toml, kill, open_competition, wait_for_end, wait_until
from tests.lethe.conftest import write_files
from tests.support.towns import towns_toml, write_towns

pytestmark = pytest.mark.slow

TRIO = "trio"
OWN_SECTIONS = ("[task]", "[dataset]", "[network]", "[training]", "[splits]", "[splits.forget]")
NOISE = """
import torch
def unlearning(net, retain_loader, forget_loader, val_loader):
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
"""


def as_task(toml: str, name: str) -> str:
    """Return the sections of a competition's file that a task may have, as those of a task."""
    lines, kept = ["[[tasks]]", f'name = "{name}"', f'title = "{name.title()}"'], False
    for line in toml.splitlines():
        if line.startswith("["):
            kept = line in OWN_SECTIONS
        if kept:
            lines.append(line.replace("[", "[tasks.", 1) if line.startswith("[") else line)
    return "\n".join(lines)


SHARED_SEED = "18446744073709551617"  # of the other modules' competitions


def trio_toml(towns: Path) -> str:
    moment = datetime.now(UTC).replace(microsecond=0)
    images = TOML.format(slug=TRIO, opens="", closes="", n=4, shard=2, floor=8.0)
    text = f"""
slug = "{TRIO}"
title = "Trio"
opens_at = {(moment - timedelta(hours=1)).isoformat()}
closes_at = {(moment + timedelta(days=1)).isoformat()}
n_models = 4
shard_runs = 2
[combine]
by = "mean"
[limits]
run_wall_time_floor_s = 30.0
memory_mib = 512
{as_task(images, "digits")}
{as_task(images.replace("noise = 1.0", "noise = 0.5"), "clean")}
{as_task(towns_toml(towns), "towns")}
"""
    return text.replace(SHARED_SEED, "18446744073709551629")  # a bundle keeps seeds that an open competition has too


@pytest.mark.timeout(600)
def test_tasks_are_played_in_sandboxes_published_and_run_again(empty_instance: Instance, tmp_path: Path) -> None:
    towns = write_towns(tmp_path / "towns")
    organiser = empty_instance.organiser
    open_competition(empty_instance, trio_toml(towns))
    tia = empty_instance.participant("tia")
    (code := tmp_path / "submission.py").write_text(NOISE)
    sent = wait_for_end(tia, tia.submit(TRIO, code))
    assert [(part["task"], part["stage"]) for part in sent["parts"]] == [
        ("digits", "scored"), ("clean", "scored"), ("towns", "scored"),
    ]  # fmt: skip
    tia.select(sent["id"])
    tia.publish(sent["id"])
    organiser.act(TRIO, "close", {"reason": "enough was seen"})
    wait_until(lambda: organiser.competition(TRIO)["state"] == "provisional")
    organiser.act(TRIO, "reveal", {"reason": "all is scored"})
    bundle = tmp_path / "bundle"
    unpack(organiser.download(f"/competitions/{TRIO}/bundle", tmp_path / "bundle.zip"), bundle)
    assert check(bundle).differences == []
    (entry,) = read(bundle, "entries.json")
    assert (bundle / entry["code"]).read_text() == NOISE
    copytree(towns, bundle / "towns")  # the organisers' own data, which nobody publishes for them
    for task in ("digits", "towns"):
        arguments = ["replay", str(bundle), "--entry", sent["id"][:6], "--task", task, "--split", "private", "--json"]
        done = CliRunner().invoke(build_app(), arguments)
        assert done.exit_code == 0, done.output
        again = json.loads(done.stdout)
        assert again["equal"], again
        assert again["runs"] == 4


PLAY = Path(__file__).parents[2] / "examples" / "agents" / "play.py"
AGENTS = "agents"


def test_agent_plays_to_the_close_within_its_quota(empty_instance: Instance) -> None:
    toml = competition_toml(slug=AGENTS, n=4, shard=4).replace("submissions_per_day = 100", "submissions_total = 3")
    open_competition(empty_instance, toml.replace("[scoring]\n", "[scoring]\nshow_breakdown = true\n"))
    client = empty_instance.participant("agent")
    token = client.log_in("agent", "agent-and-a-long-password")
    environment = os.environ | {"LETHE_URL": empty_instance.url, "LETHE_TOKEN": token}
    words = [sys.executable, str(PLAY), AGENTS, "--submissions", "9", "--until-the-reveal"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as agent:
        wait_until(lambda: any(one["selected"] for one in client.submissions(AGENTS)))
        organiser = empty_instance.organiser
        organiser.act(AGENTS, "close", {"reason": "the end of the play"})
        wait_until(lambda: organiser.competition(AGENTS)["state"] == "provisional")
        organiser.act(AGENTS, "reveal", {"reason": "the end of the play"})
        said, _ = agent.communicate(timeout=120)
    assert agent.returncode == 0
    sent = client.submissions(AGENTS)
    assert [one["stage"] for one in sent] == ["scored"] * 3, "the quota of three ended it, not its own nine"
    chosen = [one["id"] for one in sent if one["selected"]]
    assert chosen == [max(sent, key=lambda one: float(one["score"]["final_score"]))["id"]]
    *tried, board = said.splitlines()
    assert all('"advice": "' in line for line in tried)
    assert '"team": "agent"' in board


def test_a_benchmark_survives_its_worker(empty_instance: Instance, tmp_path: Path) -> None:
    client = empty_instance.organiser
    competitions = client.competitions()
    progress.put_benchmark(client, read_plan(write_files(tmp_path)))
    wait_until(lambda: _cell(client)["split"] == "ready")
    wait_until(lambda: _cell(client)["n_done"] > 0)
    for pid in empty_instance.workers():
        kill(pid)
    status = progress.wait(client, "tiny", lambda _: None, every_s=0.5)
    content = progress.get_results(client, "tiny")
    assert client.competitions() == competitions, "its cells are none of them"
    assert (status["left"], status["progress"][0]["n_done"], status["progress"][0]["n_failed"]) == (0, 2, 1)
    rows = content["cells"]["tiny"]["rows"]
    assert rows["broken"]["failure"].startswith("exception: ")
    assert "See unlearning.py, line 3." in rows["broken"]["failure"]
    assert rows["original"]["values"]["forget_accuracy"] == rows["original model"]["values"]["forget_accuracy"]
    for name in ("original", "exact retraining", "original model"):
        assert {"f", "score", "retdev", "umia", "accuracy_gap", "test_accuracy"} <= set(rows[name]["values"])
    entry, model = (rows[name]["values"]["f"]["value"] for name in ("original", "original model"))
    assert entry == pytest.approx(model, abs=0.1), "the same outputs, judged on other halves"
    assert len(list(benchmark_tables(content))) > 1


def _cell(client: LetheClient) -> dict[str, object]:
    return progress.get_status(client, "tiny")["progress"][0]
