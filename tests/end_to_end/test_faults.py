"""A submission that fails in a later run says which, and one that is cancelled stops and harms no other."""

from pathlib import Path

import pytest

from lethe.client.api import JsonObject, LetheClient
from tests.end_to_end.conftest import ONE_STEP, Instance, wait_for_end, wait_until

pytestmark = pytest.mark.slow

UNLUCKY = """
import torch
def unlearning(net, retain, forget, val):
    if len(retain.dataset) > 200 and torch.initial_seed() % 3 == 0:
        raise RuntimeError('unlucky')
"""
ENDLESS = ONE_STEP.replace("    optimizer = torch", "    __import__('time').sleep(15)\n    optimizer = torch")


def send(client: LetheClient, folder: Path, code: str, name: str) -> JsonObject:
    path = folder / f"{name}.py"
    path.write_text(code)
    return client.submit("tiny", path)


def test_a_cancelled_submission_stops_and_its_worker_goes_on(instance: Instance, tmp_path: Path) -> None:
    client = instance.participant("hasty")
    endless = send(client, tmp_path, ENDLESS, "endless")
    wait_until(lambda: client.submission(endless["id"])["stage"] in ("smoke", "running"))
    client.cancel(endless["id"])
    assert wait_for_end(client, endless)["stage"] == "cancelled"
    good = wait_for_end(client, send(client, tmp_path, ONE_STEP, "good"))
    assert good["stage"] == "scored"


def test_an_exception_in_a_later_run_names_run_and_line(instance: Instance, tmp_path: Path) -> None:
    """The seed tells run from run, so some runs of eight raise and the smoke run does not."""
    client = instance.participant("clumsy")
    ended = wait_for_end(client, send(client, tmp_path, UNLUCKY, "late"))
    assert ended["stage"] == "failed"
    told = {name: ended["failure"][name] for name in ("fault", "exception_type", "file", "line")}
    assert told == {"fault": "participant", "exception_type": "RuntimeError", "file": "late.py", "line": 5}
