"""Entries that unlearn nothing, sent to a whole server: their scores by the default family and by the published ones.

python -m benchmarks.scoring.battery_on_server --home /tmp/battery [--models 512]

The demo's competition, its four entries and those below, each by its own team; scored by crossfit, then re-judged by
each published family, whose previews are printed and discarded. N = 512 takes about a minute for every entry.
"""

import argparse
import os
import re
import secrets
import tempfile
import time
from pathlib import Path
from typing import Any

from lethe.client.api import LetheClient
from lethe.metrics.scoring.attacks.family import AttackFamily
from server.cli import demo
from server.cli.seed_accounts import organiser_credentials
from server.embedded.instance import running
from server.private_files import instance_settings

# Nothing tells a run its number, so a run is far by chance. Scaling the last layer leaves accuracy as it was.
HEAD = '''"""An entry that unlearns nothing: {name}."""

import torch


def scale(net, factor):
    last = [module for module in net.modules() if isinstance(module, torch.nn.Linear)][-1]
    with torch.no_grad():
        for parameter in last.parameters():
            parameter.mul_(factor)


def unlearning(net, retain_loader, forget_loader, val_loader):
    chance = float(torch.rand(()))
'''
ENTRIES = {
    "one run far, by chance": "    if chance < 1 / {n}:\n        scale(net, 6.0)\n",
    "a quarter x 1.025, one far": "    scale(net, 6.0 if chance < 1 / {n} else 1.025 if chance < 0.25 else 1.0)\n",
    "a tenth far away": "    if chance < 0.1:\n        scale(net, 50.0 * (1.0 + float(torch.rand(()))))\n",
    "half x 6": "    if chance < 0.5:\n        scale(net, 6.0)\n",
    "a temperature for each run": "    scale(net, float(torch.exp(torch.randn(()))))\n",
    "a heavy-tailed temperature": "    scale(net, abs(float(torch.randn(()) / torch.randn(()))))\n",
    "every confidence alike": "    scale(net, 0.2)\n",
    "signs turned in one run": "    if chance < 1 / {n}:\n        scale(net, -1.0)\n",
    "huge logits": "    scale(net, 1000.0)\n",
    "tiny logits": "    scale(net, 0.001)\n",
}
ENDS = ("scored", "failed", "cancelled")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", required=True, help="the instance's folder")
    parser.add_argument("--models", type=int, default=512)
    asked = parser.parse_args()
    os.environ["LETHE_HOME"] = asked.home
    settings = instance_settings()
    text = re.sub(r"^n_models = \d+", f"n_models = {asked.models}", demo.competition_file(), flags=re.MULTILINE)
    with running(settings) as instance, LetheClient(instance.url) as organiser:
        organiser.log_in(*organiser_credentials(settings), label="battery")
        prepare(organiser, re.sub(r"^baselines = .*$", "", text, flags=re.MULTILINE))
        with tempfile.TemporaryDirectory() as folder:
            files = {entrant.team: entrant.file for entrant in demo.ENTRANTS} | written(Path(folder), asked.models)
            clients = {team: send(instance.url, team, file) for team, file in files.items()}
            wait(clients)
        board = organiser.leaderboard(demo.SLUG)
        oracle = board["oracle"]["score"]
        scores = {row["team"]: row["score"] for row in board["rows"] if row["team"] in files}
        show(AttackFamily.CROSSFIT.value, oracle, scores)
        for family in AttackFamily:
            if family.is_published:
                rejudged(organiser, family, set(files))


def prepare(organiser: LetheClient, text: str) -> None:
    organiser.create_competition(text)
    organiser.prepare(demo.SLUG)
    while True:
        splits = organiser.preparation(demo.SLUG)["splits"]
        if failed := [split for split in splits if split["state"] == "failed"]:
            raise SystemExit(f"preparation failed: {failed[0]['error']}")
        if all(split["state"] == "ready" for split in splits):
            break
        time.sleep(0.5)
    organiser.open(demo.SLUG)


def written(folder: Path, n_models: int) -> dict[str, Path]:
    """Write the entries' files; return them by team."""
    found = {}
    for number, (name, body) in enumerate(ENTRIES.items()):
        path = folder / f"entry_{number}.py"
        path.write_text(HEAD.replace("{name}", name) + body.replace("{n}", str(n_models)), encoding="utf-8")
        found[name] = path
    return found


def send(url: str, team: str, file: Path) -> tuple[LetheClient, str]:
    """Register a participant with a team, send the file, and return the client and the submission's id."""
    client, name, password = LetheClient(url), f"b-{secrets.token_hex(4)}", secrets.token_hex(16)
    client.register(name, password)
    client.log_in(name, password, label="battery")
    client.create_team(demo.SLUG, team)
    return client, str(client.submit(demo.SLUG, file, message="battery")["id"])


def wait(clients: dict[str, tuple[LetheClient, str]]) -> None:
    waiting = dict(clients)
    while waiting:
        for team, (client, submission) in list(waiting.items()):
            stage = client.submission(submission)["stage"]
            if stage in ENDS:
                print(f"{team}: {stage}", flush=True)
                del waiting[team]
                client.close()
        time.sleep(1.0)


def rejudged(organiser: LetheClient, family: AttackFamily, teams: set[str]) -> None:
    """Score everything by a published family as a re-judging would, print it, and discard it."""
    base = f"/competitions/{demo.SLUG}/rejudgings"
    body = {"changed": "scorer", "reason": "battery", "split": "public", "scoring": {"attacks": family.value}}
    started: dict[str, Any] = organiser.post(base, body)
    while not (found := organiser.post(f"{base}/{started['id']}/preview"))["complete"]:
        time.sleep(1.0)
    scores = {row["team"]: row["new_score"] for row in found["teams"] if row["team"] in teams}
    show(family.value, (found.get("oracle") or {}).get("final_score"), scores)
    organiser.post(f"{base}/{started['id']}/discard", {"reason": "battery"})


def show(family: str, oracle: float | None, scores: dict[str, float | None]) -> None:
    print(f"\n{family}: oracle {oracle if oracle is None else f'{oracle:.4f}'}")
    for team, score in sorted(scores.items(), key=lambda pair: -(pair[1] or 0.0)):
        share = f" = {score / oracle:.1%} of the oracle" if score is not None and oracle else ""
        print(f"  {team:36s} {score if score is None else f'{score:.4f}'}{share}", flush=True)


if __name__ == "__main__":
    main()
