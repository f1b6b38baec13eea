"""A whole competition on an instance that runs, in a minute: `python -m server.cli.smoke URL ADMINISTRATOR`.

Reads the administrator's password from standard input. Prepares a tiny competition on scikit-learn's digits, sends a
submission as a new participant, and waits for its score from the workers' own sandbox. With --look it only finds that
again, as after a restore. For `scripts/smoke-compose`, and for whoever has set an instance up.
"""

import argparse
import secrets
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from lethe.client.api import LetheClient
from lethe.errors import HostFault

SLUG = "smoke"
TIMEOUT_S = 600.0
POLL_INTERVAL_S = 0.3
TOML = """\
slug = "{slug}"
title = "Smoke test"
opens_at = {opens}
closes_at = {closes}
n_models = 4
shard_runs = 2
[dataset]
name = "digits"
[network]
name = "mlp"
options = {{ hidden = [16] }}
[training]
epochs = 6
learning_rate = 0.1
[splits]
train_size = 400
test_fraction = 0.4
[splits.forget]
by = "random"
fraction = 0.1
[limits]
run_wall_time_floor_s = 30.0
memory_mib = 512
"""
CODE = """\
import torch


def unlearning(net, retain_loader, forget_loader, val_loader):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for batch in retain_loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(batch["image"]), batch["label"]).backward()
        optimizer.step()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("administrator")
    parser.add_argument("--look", action="store_true", help="only look for the score of an earlier run")
    options = parser.parse_args()
    with LetheClient(options.url) as administrator:
        administrator.log_in(options.administrator, sys.stdin.readline().rstrip("\n"), label="smoke test")
        if not options.look:
            _open_competition(administrator)
            _send(options.url)
        board = administrator.leaderboard(SLUG)
        scored = [row for row in board["rows"] if row["kind"] == "team"]
        if not scored:
            raise HostFault(f"no team has a score in {SLUG}")
        print(f"score {scored[0]['score']:.6f}, the oracle {board['oracle']['score']:.6f}")


def _open_competition(administrator: LetheClient) -> None:
    at = datetime.now(UTC).replace(microsecond=0)
    opens, closes = (at - timedelta(minutes=5)).isoformat(), (at + timedelta(days=1)).isoformat()
    administrator.create_competition(TOML.format(slug=SLUG, opens=opens, closes=closes))
    administrator.prepare(SLUG)
    _wait("prepared", lambda: administrator.competition(SLUG)["state"] in ("ready", "open"))
    administrator.open(SLUG)


def _send(url: str) -> None:
    name, password = f"smoke-{secrets.token_hex(4)}", secrets.token_hex(16)
    with LetheClient(url) as participant, tempfile.TemporaryDirectory() as folder:
        participant.register(name, password)
        participant.log_in(name, password, label="smoke test")
        file = Path(folder) / "submission.py"
        file.write_text(CODE)
        sent = participant.submit(SLUG, file)
        _wait("scored", lambda: participant.submission(sent["id"])["stage"] in ("scored", "failed"))
        ended = participant.submission(sent["id"])
        if ended["stage"] != "scored":
            raise HostFault(f"the submission ended as {ended['stage']}: {ended['failure']}")


def _wait(what: str, is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_done():
        if time.monotonic() > deadline:
            raise HostFault(f"not {what} within {TIMEOUT_S:g} s")
        time.sleep(POLL_INTERVAL_S)


if __name__ == "__main__":
    main()
