"""An automated participant: plays one competition over the HTTP API, from joining to the close.

It searches the noise and the learning rate of one method: two random settings first, then small changes of the best so
far. It keeps to the quota, waits where the server says so, and chooses its best submission for the private leaderboard.

LETHE_URL=https://the.server LETHE_TOKEN=lethe_... python play.py digits --submissions 10
"""

import argparse
import json
import os
import random
import tempfile
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from lethe.client.api import ApiError, LetheClient, Unreachable

CODE = """
import torch
from torch import nn


def unlearning(net, retain_loader, forget_loader, val_loader):
    with torch.no_grad():
        for weight in net.parameters():
            if weight.dim() > 1:
                weight.add_({noise} * weight.std() * torch.randn_like(weight))
    optimizer = torch.optim.SGD(net.parameters(), lr={rate}, momentum=0.9)
    net.train()
    for batch in retain_loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(batch["image"]), batch["label"]).backward()
        optimizer.step()
    net.eval()
"""
LOOK_EVERY_S = 2.0
MAX_TRIES = 60  # while the server is busy or not there


def propose(tried, rng):
    """Return the next setting: random at first, then near the best that was scored."""
    scored = [one for one in tried if one["score"] is not None]
    if len(scored) < 2:
        return {"noise": round(rng.uniform(0.2, 1.0), 3), "rate": round(10 ** rng.uniform(-2, -1), 4)}
    best = max(scored, key=lambda one: one["score"])["setting"]
    return {name: round(value * 2 ** rng.gauss(0, 0.5), 4) for name, value in best.items()}


def wait_for_turn(client, slug, closes_at):
    """Return whether another submission may be sent before the close, once the quota allows one."""
    while datetime.now(UTC) < closes_at:
        quota = client.quota(slug)
        if quota["remaining"]:
            return True
        if quota["remaining_total"] == 0:
            return False
        opens = min(datetime.fromisoformat(quota["resets_at"]), closes_at)
        time.sleep(max(LOOK_EVERY_S, min(600.0, (opens - datetime.now(UTC)).total_seconds())))
    return False


def send(client, slug, setting):
    """Return the submission, sent again while the server is busy; None where the competition takes no more."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "submission.py"
        path.write_text(CODE.format(**setting))
        for attempt in range(MAX_TRIES):
            try:
                return client.submit(slug, path, message=json.dumps(setting))
            except Unreachable:
                time.sleep(LOOK_EVERY_S)
            except ApiError as error:
                if error.http_status not in (429, 503) or error.problem["type"].endswith(":quota-exceeded"):
                    print(f"refused: {error}")
                    return None
                time.sleep(min(60.0, LOOK_EVERY_S * 2**attempt))
    return None


def play(client, slug, *, submissions, seed=0):
    """Return what was tried: setting, score, advice where it is shown."""
    rng, tried = random.Random(seed), []
    closes_at = datetime.fromisoformat(client.competition(slug)["closes_at"])
    while len(tried) < submissions and wait_for_turn(client, slug, closes_at):
        setting = propose(tried, rng)
        sent = send(client, slug, setting)
        if sent is None:
            break
        done = client.wait(sent["id"], every_s=LOOK_EVERY_S)
        score = done["score"] and done["score"]["final_score"]
        advice = (done.get("explanation") or {}).get("advice")
        tried.append({"id": sent["id"], "setting": setting, "score": score, "advice": advice})
        print(json.dumps(tried[-1] | {"failure": done["failure"]}), flush=True)
    choose(client, tried)
    return tried


def choose(client, tried):
    """Choose the best submission for the private leaderboard; after the close the server has done so."""
    scored = [one for one in tried if one["score"] is not None]
    if scored:
        with suppress(ApiError):
            client.select(max(scored, key=lambda one: one["score"])["id"])


def wait_for_result(client, slug):
    """Return the private leaderboard, once the organisers have revealed it."""
    while client.competition(slug)["state"] != "final":
        time.sleep(LOOK_EVERY_S)
    return client.leaderboard(slug, board="private")


def main():
    parser = argparse.ArgumentParser(description="Play a competition over the HTTP API.")
    parser.add_argument("competition")
    parser.add_argument("--submissions", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--join", metavar="TOKEN", help="of an invitation link")
    parser.add_argument("--until-the-reveal", action="store_true", help="wait for the private leaderboard and print it")
    asked = parser.parse_args()
    with LetheClient(os.environ["LETHE_URL"], token=os.environ["LETHE_TOKEN"]) as client:
        if asked.join:
            client.post(f"/competitions/{asked.competition}/participation/join", {"token": asked.join})
        play(client, asked.competition, submissions=asked.submissions, seed=asked.seed)
        if asked.until_the_reveal:
            print(json.dumps(wait_for_result(client, asked.competition)))


if __name__ == "__main__":
    main()
