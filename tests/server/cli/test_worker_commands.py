"""`lethe worker`: its address and token, which is asked for where nobody reads it."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.errors import InvalidInput
from worker.remote.pool import TOKEN_VARIABLE, take_token


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
