"""The `lethe` command as a participant uses it, against a real server: from the starter kit to a score."""

import json
import os
import secrets
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import update

from lethe.client.api import ApiError, LetheClient
from server.models.evaluation import PublicScore
from tests.end_to_end.conftest import Instance, wait_for_end, wait_until
from tests.faults import forked

MAX_DURATION_S = 300.0


@dataclass(frozen=True)
class Done:
    """What came of a command."""

    returncode: int | None
    stdout: str
    stderr: str


Command = Callable[..., Done]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("participant")


@pytest.fixture(scope="module")
def lethe(instance: Instance, folder: Path) -> Command:
    """Run `lethe` as another process, logged in by the environment. The processes share what libraries they import."""
    client = instance.participant("comma")
    token = client.log_in("comma", "comma-and-a-long-password")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("LETHE_")},
        "LETHE_URL": instance.url,
        "LETHE_TOKEN": token,
        "LETHE_COMPETITION": "tiny",  # other modules leave competitions of their own on the instance
        "LETHE_HOME": str(folder / "home"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "COLUMNS": "120",
    }

    def run(*words: str, cwd: Path = folder, module: str = "lethe.cli.main", **variables: str) -> Done:
        written = [folder / f"{secrets.token_hex(4)}.{name}" for name in ("out", "err")]
        log, errors = written
        there = environment | variables
        command = forked.start("lethe", module, words, environment=there, log=log, errors=errors, folder=cwd)
        ended = command.wait(MAX_DURATION_S)
        command.kill()
        assert ended, f"{module} {shlex.join(words)} does not end"
        return Done(command.exit_status, *(file.read_text() for file in written))

    return run


@pytest.fixture(scope="module")
def kit(instance: Instance, lethe: Command, folder: Path) -> Path:
    def is_made() -> bool:
        try:
            return bool(client.starter_kit("tiny"))
        except ApiError:
            return False

    with LetheClient(instance.url) as client:
        wait_until(is_made)
    made = lethe("init", "kit", "--json")
    assert made.returncode == 0, made.stderr
    return folder / "kit"


@pytest.fixture
def lethe_there(instance: Instance, lethe: Command) -> Command:
    """Run `lethe` on the server's machine."""

    def run(*words: str) -> Done:
        return lethe(*words, LETHE_HOME=str(instance.settings.home))

    return run


def answer(done: Done) -> dict[str, object]:
    assert done.returncode == 0, (done.stdout, done.stderr)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_the_kit_is_whole_and_names_its_competition(instance: Instance, kit: Path) -> None:
    assert json.loads((kit / "lethe.json").read_text()) == {"url": instance.url, "competition": "tiny"}
    assert "8 times" in (kit / "README.md").read_text()
    assert not list(kit.rglob("test.safetensors"))
    assert len(list((kit / "data" / "retrained_models").iterdir())) >= 4


@pytest.mark.slow
def test_the_kits_script_runs_without_the_platform(lethe: Command, kit: Path) -> None:
    done = lethe("submission.py", "4", cwd=kit, module="tests.support.kit_script")
    assert done.returncode == 0, done.stderr
    assert "ESTIMATE of the score" in done.stdout


@pytest.mark.slow
def test_the_kits_notebook_is_a_submission_with_an_estimate(lethe: Command, kit: Path) -> None:
    found = answer(lethe("check", "notebook.ipynb", "--runs", "4", "--json", cwd=kit))
    assert found["failure"] is None
    assert found["entry_point"]["mode"] == "function"  # type: ignore[index]
    assert found["runs"] == 4
    assert found["score_estimate"] is not None
    assert 0 < float(found["retain_accuracy"]) <= 1  # type: ignore[arg-type]
    assert float(found["all_runs_s"]) > 0  # type: ignore[arg-type]


def test_check_names_what_would_be_refused(lethe: Command, kit: Path, folder: Path) -> None:
    (folder / "no.py").write_text("def forget(): pass\n")
    refused = lethe("check", "no.py", "--kit", "kit")
    assert refused.returncode == 1
    assert "unlearning" in refused.stderr
    (folder / "raises.py").write_text("def unlearning(net, r, f, v):\n    print('before')\n    raise KeyError('x')\n")
    failed = lethe("check", "raises.py", "--kit", "kit")
    assert failed.returncode == 3
    for words in ("before", "exception", "line 3"):
        assert words in failed.stdout


def test_submit_waits_and_says_the_outcome_by_its_status(lethe: Command, kit: Path, folder: Path) -> None:
    sent = answer(lethe("submit", "submission.py", "-m", "from the kit", "--wait", "--json", cwd=kit))
    assert sent["stage"] == "scored"
    assert answer(lethe("status", str(sent["id"]), "--json"))["score"] is not None
    assert "comma" in lethe("leaderboard").stdout
    (folder / "raises.py").write_text("def unlearning(net, r, f, v):\n    print('seen')\n    raise KeyError('x')\n")
    failed = lethe("submit", "raises.py", "--wait", "-c", "tiny")
    assert failed.returncode == 3, failed.stdout
    assert "raises.py, line 3" in failed.stdout
    assert "submission.py" not in failed.stdout.partition("Traceback")[0]
    for words in ("Traceback (most recent call last):", "raise KeyError('x')", "KeyError: 'x'"):
        assert words in failed.stdout
    rows = json.loads(lethe("submissions", "--json").stdout)
    assert [row["stage"] for row in rows] == ["failed", "scored"]
    assert "seen" in lethe("logs", rows[0]["id"]).stdout
    assert "KeyError: 'x'" in lethe("status", rows[0]["id"]).stdout
    assert "KeyError: 'x'" in json.loads(lethe("status", rows[0]["id"], "--json").stdout)["failure_text"]


def test_an_address_where_nobody_answers_is_named(lethe: Command) -> None:
    lost = lethe("competitions", "--url", "http://127.0.0.1:9")
    assert lost.returncode == 1
    assert "http://127.0.0.1:9 did not answer" in lost.stderr


NOISE = """
import os, torch
def unlearning(net, retain_loader, forget_loader, val_loader):
    {seed}
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
"""


def scored(instance: Instance, folder: Path, seed: str) -> str:
    """Send code that draws noise, wait for its score, and keep its receipt."""
    client = instance.participant(f"replayed-{len(instance.clients)}")
    (folder / "noise.py").write_text(NOISE.format(seed=seed))
    ended = wait_for_end(client, client.submit("tiny", folder / "noise.py"))
    assert ended["stage"] == "scored"
    (folder / "receipt.json").write_text(json.dumps(client.get(f"/submissions/{ended['id']}/receipt")))
    return str(ended["id"])


@pytest.mark.slow
def test_replay_gives_the_same_bits(instance: Instance, lethe_there: Command, folder: Path) -> None:
    submission = scored(instance, folder, "pass")
    found = answer(lethe_there("replay", "receipt.json", "--json"))
    assert (found["submission"], found["equal"], found["runs"]) == (submission, True, 8)
    assert found["score"] == found["stored_score"]
    assert (found["different_runs"], found["differences"]) == ([], [])


@pytest.mark.slow
def test_replay_names_each_run_and_a_score_that_differ(instance: Instance, lethe_there: Command, folder: Path) -> None:
    submission = scored(instance, folder, "torch.manual_seed(int.from_bytes(os.urandom(7), 'big'))")
    with instance.database.write() as session:
        mine = update(PublicScore).where(PublicScore.submission_id == submission)
        session.execute(mine.values(final_score=PublicScore.final_score * 2 + 1))
    replayed = lethe_there("replay", "receipt.json", "--json")
    assert replayed.returncode == 3, replayed.stderr
    told = json.loads(replayed.stdout)
    assert (told["equal"], told["different_runs"]) == (False, list(range(8)))
    assert told["score"] < 1 < told["stored_score"], "it was computed, and not read"
    assert "the receipt's score is" in told["differences"][0]
    refused = lethe_there("replay", "0" * 16)
    assert refused.returncode == 1
    assert "was not evaluated" in refused.stderr
