"""Submissions that fail, sent over HTTP and run by the real worker: each ends in its named error, alone."""

from pathlib import Path

import pytest

from lethe.client.api import ApiError, LetheClient
from tests.end_to_end.conftest import ONE_STEP, Instance, wait_for_end

pytestmark = pytest.mark.slow

SIGNATURE = "def unlearning(net, retain, forget, val):\n"

# code, error class, the line of the participant's own file (None: not known)
RUNS = {
    "raises at once": (SIGNATURE + "    raise ValueError('no')\n", "exception", 2),
    "wrong shape": (
        "import torch\n" + SIGNATURE + "    last = list(net.modules())[-1]\n"
        "    last.weight = torch.nn.Parameter(torch.zeros(11, last.weight.shape[1]))\n",
        "wrong-weights",
        None,
    ),
    "wrong dtype": (SIGNATURE + "    net.double()\n", "wrong-weights", None),
    "missing name": (SIGNATURE + "    del list(net.modules())[-1]._parameters['bias']\n", "wrong-weights", None),
    "extra name": (
        "import torch\n" + SIGNATURE + "    net.register_parameter('more', torch.nn.Parameter(torch.ones(1)))\n",
        "wrong-weights",
        None,
    ),
    "NaN": (SIGNATURE + "    next(net.parameters()).data.fill_(float('nan'))\n", "non-finite-weights", None),
    "infinity": (SIGNATURE + "    next(net.parameters()).data.fill_(float('inf'))\n", "non-finite-weights", None),
    "runs past its time": ("import time\n" + SIGNATURE + "    while True: time.sleep(1)\n", "timeout", None),
    "eats memory": (
        SIGNATURE + "    hoard = []\n    while True: hoard.append(bytearray(b'x' * (16 << 20)))\n",
        "out-of-memory",
        None,
    ),
    "prints a gigabyte": (
        SIGNATURE + "    line = 'x' * (1 << 20)\n    for _ in range(1024): print(line)\n",
        "log-limit",
        None,
    ),
    "exits": ("import os\n" + SIGNATURE + "    os._exit(0)\n", "no-weights", None),
}


@pytest.fixture(scope="module")
def client(instance: Instance) -> LetheClient:
    return instance.participant("clumsy")


@pytest.mark.parametrize("case", RUNS)
def test_failing_code_ends_in_its_named_error(client: LetheClient, tmp_path: Path, case: str) -> None:
    code, error_class, line = RUNS[case]
    path = tmp_path / "mine.py"
    path.write_text(code)
    ended = wait_for_end(client, client.submit("tiny", path))
    assert ended["stage"] == "failed"
    assert (ended["failure"]["fault"], ended["failure"]["error_class"]) == ("participant", error_class)
    assert ended["failure"]["message"]
    if line is not None:
        assert (ended["failure"]["file"], ended["failure"]["line"]) == ("mine.py", line)


def test_an_exception_in_a_later_run_names_run_and_line(client: LetheClient, tmp_path: Path) -> None:
    # The seed tells run from run, so some runs of eight raise and the smoke run does not.
    path = tmp_path / "late.py"
    path.write_text(
        "import torch\n" + SIGNATURE + "    if len(retain.dataset) > 200 and torch.initial_seed() % 3 == 0:\n"
        "        raise RuntimeError('unlucky')\n"
    )
    ended = wait_for_end(client, client.submit("tiny", path))
    assert ended["stage"] == "failed"
    assert ended["failure"]["error_class"] == "exception"
    assert ended["failure"]["exception_type"] == "RuntimeError"
    assert (ended["failure"]["file"], ended["failure"]["line"]) == ("late.py", 4)


def test_good_code_is_scored_after_all_of_that(client: LetheClient, tmp_path: Path) -> None:
    path = tmp_path / "good.py"
    path.write_text(ONE_STEP)
    ended = wait_for_end(client, client.submit("tiny", path))
    assert ended["stage"] == "scored", ended
    assert ended["score"] is not None
    [mine] = [row for row in client.leaderboard("tiny")["rows"] if row["team"] == "clumsy"]
    assert mine["score"] == ended["score"]["final_score"]


def test_code_without_the_function_is_refused_at_the_door(client: LetheClient, tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    path.write_text("def forget(): ...\n")
    with pytest.raises(ApiError, match="unlearning") as refused:
        client.submit("tiny", path)
    assert refused.value.http_status == 422
