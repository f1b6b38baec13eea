"""A competition of two tasks of images and one of text, in real sandboxes, to results that are run again elsewhere."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shutil import copytree

import pytest
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.client.bundle import check, read, unpack
from tests.end_to_end.conftest import TOML, Instance, open_competition, wait_for_end, wait_until
from tests.support.towns import towns_toml, write_towns

pytestmark = pytest.mark.slow

SLUG = "trio"
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
    images = TOML.format(slug=SLUG, opens="", closes="", n=4, shard=2, floor=8.0)
    text = f"""
slug = "{SLUG}"
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
    sent = wait_for_end(tia, tia.submit(SLUG, code))
    assert [(part["task"], part["stage"]) for part in sent["parts"]] == [
        ("digits", "scored"), ("clean", "scored"), ("towns", "scored"),
    ]  # fmt: skip
    tia.select(sent["id"])
    tia.publish(sent["id"])
    organiser.act(SLUG, "close", {"reason": "enough was seen"})
    wait_until(lambda: organiser.competition(SLUG)["state"] == "provisional")
    organiser.act(SLUG, "reveal", {"reason": "all is scored"})
    bundle = tmp_path / "bundle"
    unpack(organiser.download(f"/competitions/{SLUG}/bundle", tmp_path / "bundle.zip"), bundle)
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
