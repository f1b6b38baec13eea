"""`lethe worker-token` and `lethe worker`: made, listed and revoked; the token is asked for where nobody reads it."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.errors import InvalidInput
from server.models.account import Role
from tests.server.cli.conftest import Run, answer
from tests.support.instance import Instance
from worker.remote.settings import TOKEN_VARIABLE, take_token


@pytest.fixture
def olga(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Log the organiser of a competition in by the environment."""
    owner = server.account("olga", Role.ORGANISER)
    server.competition("digits", organiser=owner)
    token = server.headers(owner)["Authorization"].removeprefix("Bearer ")
    monkeypatch.setenv("LETHE_TOKEN", token)


@pytest.mark.usefixtures("olga")
def test_worker_token_is_made_listed_and_revoked(lethe: Run) -> None:
    made = answer(lethe("worker-token", "create", "gpu room", "--days", "3", "--public-only", "--json"))
    shown = lethe("worker-token", "create", "another").stdout.strip()
    assert made["token"].startswith("lethe_worker_")
    assert shown.startswith("lethe_worker_")
    listed = answer(lethe("worker-token", "list", "--json"))
    assert {(token["name"], token["public_only"]) for token in listed} == {("gpu room", True), ("another", False)}
    assert "gpu room" in lethe("worker-token", "list").stdout
    lethe("worker-token", "revoke", made["id"])
    assert [token["name"] for token in answer(lethe("worker-token", "list", "--json"))] == ["another"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--server", "http://lethe.example.org"], "unencrypted: use https://"),
        (["--server", "lethe.example.org"], "has the form https://host"),
        (["--server", "https://lethe.example.org"], "No worker token is set"),
        (["--server", "http://127.0.0.1:1"], "No worker token is set"),
        (["--server", "http://lethe.example.org", "--insecure"], "No worker token is set"),
    ],
)
def test_worker_refuses_an_open_address_and_a_missing_token(words: list[str], reason: str) -> None:
    refused = CliRunner().invoke(build_app(), ["worker", *words])
    assert isinstance(refused.exception, InvalidInput)
    assert reason in refused.exception.detail


def test_token_is_removed_from_the_inherited_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, " lethe_worker_x\n")
    assert take_token().get_secret_value() == "lethe_worker_x"
    program = f"import os; print({TOKEN_VARIABLE!r} in os.environ)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
