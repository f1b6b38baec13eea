"""The command line against a real application: its HTTP client talks to the application in this process."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner, Result

from lethe.cli.main import build_app
from lethe.client import api
from lethe.errors import AppError
from server.main import create_app
from server.models.account import Account, Role
from tests.support.instance import Instance

URL = "http://localhost"
Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def _own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the developer's own log-in and kit out of the tests, and theirs out of it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def lethe(server: Instance, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command. An expected error becomes exit status 1 with its text, as `lethe` shows it."""
    application = create_app()

    def client(*, base_url: str, headers: dict[str, str], timeout: float) -> TestClient:
        return TestClient(application, base_url=base_url, headers=headers, raise_server_exceptions=False)

    monkeypatch.setattr(api.httpx, "Client", client)
    monkeypatch.setenv("LETHE_URL", URL)
    runner = CliRunner()

    def run(*words: str, typed: str | None = None) -> Result:
        result = runner.invoke(build_app(), list(words), input=typed)
        if result.exception is not None and not isinstance(result.exception, SystemExit | AppError):
            raise result.exception
        return result

    return run


def told(result: Result) -> str:
    """Return what a person reads of a refused command."""
    assert isinstance(result.exception, AppError), result.output
    return f"{result.exception.title}: {result.exception.detail}"


def answer(result: Result) -> Any:
    """Return the JSON that a command printed."""
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def use(server: Instance, monkeypatch: pytest.MonkeyPatch, name: str, role: Role) -> Account:
    """Act as a new account from now on. Return it."""
    account = server.account(name, role)
    monkeypatch.setenv("LETHE_TOKEN", server.headers(account)["Authorization"].removeprefix("Bearer "))
    return account


@pytest.fixture
def submission(server: Instance, monkeypatch: pytest.MonkeyPatch) -> str:
    """Log an organiser in. Return the id of a scored submission to their competition."""
    server.competition(organiser=use(server, monkeypatch, "olga", Role.ORGANISER))
    made = str(server.submit(server.participant("ada")).json()["id"])
    server.score(made, 0.5)
    return made
