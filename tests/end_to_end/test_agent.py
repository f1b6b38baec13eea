"""The example of an automated participant plays a competition to its close, over HTTP."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lethe.client.api import LetheClient
from tests.end_to_end.conftest import Instance, competition_toml, open_competition, wait_until

pytestmark = pytest.mark.slow

PLAY = Path(__file__).parents[2] / "examples" / "agents" / "play.py"
SLUG = "agents"


def test_agent_plays_to_the_close_within_its_quota(empty_instance: Instance) -> None:
    toml = competition_toml(slug=SLUG, n=4, shard=4).replace("submissions_per_day = 100", "submissions_total = 3")
    open_competition(empty_instance, toml.replace("[scoring]\n", "[scoring]\nshow_breakdown = true\n"))
    client = empty_instance.participant("agent")
    token = client.log_in("agent", "agent-and-a-long-password")
    environment = os.environ | {"LETHE_URL": empty_instance.url, "LETHE_TOKEN": token}
    words = [sys.executable, str(PLAY), SLUG, "--submissions", "9", "--until-the-reveal"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as agent:
        wait_until(lambda: any(one["selected"] for one in client.submissions(SLUG)))
        _close(empty_instance.organiser)
        said, _ = agent.communicate(timeout=120)
    assert agent.returncode == 0
    sent = client.submissions(SLUG)
    assert [one["stage"] for one in sent] == ["scored"] * 3, "the quota of three ended it, not its own nine"
    chosen = [one["id"] for one in sent if one["selected"]]
    assert chosen == [max(sent, key=lambda one: float(one["score"]["final_score"]))["id"]]
    *tried, board = said.splitlines()
    assert all('"advice": "' in line for line in tried)
    assert '"team": "agent"' in board


def _close(organiser: LetheClient) -> None:
    organiser.act(SLUG, "close", {"reason": "the end of the play"})
    wait_until(lambda: organiser.competition(SLUG)["state"] == "provisional")
    organiser.act(SLUG, "reveal", {"reason": "the end of the play"})
