"""Which server is talked to, and which token goes there."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lethe.cli import account_commands, client_config
from lethe.cli.client_config import find_server, get_token, keep_token, remember
from lethe.cli.main import build_app
from lethe.client.api import LetheClient, NotLoggedIn
from lethe.errors import InvalidInput

OWN, FOREIGN = "https://lethe.example.org", "http://collector.example.net"
Kit = Callable[[Path], None]


@pytest.fixture(autouse=True)
def _own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("LETHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(client_config, "_keyring", lambda: None)
    for name in ("LETHE_URL", "LETHE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    inner = tmp_path / "kit" / "inner"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)


@pytest.fixture(params=[".", ".."])
def kit(request: pytest.FixtureRequest) -> Path:
    """A file in this folder, or in the one above, that names a server which the user never chose."""
    path = Path(request.param) / "lethe.json"
    path.write_text(json.dumps({"url": FOREIGN, "competition": "digits"}))
    return path


@pytest.mark.usefixtures("kit")
def test_token_of_the_environment_is_not_sent_where_a_file_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_TOKEN", "lethe_secret")
    assert find_server().url == FOREIGN
    assert get_token(find_server()) is None
    refused = CliRunner().invoke(build_app(), ["whoami"])
    assert isinstance(refused.exception, NotLoggedIn)
    for named in (FOREIGN, "lethe.json", "LETHE_URL"):
        assert named in refused.exception.detail


@pytest.mark.usefixtures("kit")
def test_token_of_the_environment_goes_to_the_address_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_TOKEN", "lethe_secret")
    monkeypatch.setenv("LETHE_URL", OWN + "/")
    assert (find_server().url, get_token(find_server())) == (OWN, "lethe_secret")
    assert get_token(find_server(FOREIGN)) is None


def test_token_of_the_environment_goes_where_its_user_said(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_TOKEN", "lethe_secret")
    assert get_token(find_server(OWN)) == "lethe_secret"
    remember(url=FOREIGN)  # the user has logged in there
    assert get_token(find_server()) == "lethe_secret"
    kit.unlink()
    assert get_token(find_server()) == "lethe_secret"


@pytest.mark.usefixtures("kit")
def test_folder_gets_the_login_of_its_own_server() -> None:
    keep_token(OWN, "lethe_own")
    remember(url=OWN)
    assert get_token(find_server()) is None
    keep_token(FOREIGN, "lethe_foreign")
    assert get_token(find_server()) == "lethe_foreign"


@pytest.mark.usefixtures("kit")
@pytest.mark.parametrize("command", ["login", "register"])
def test_password_is_not_sent_unasked_where_a_file_leads(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(account_commands, "LetheClient", lambda url, **_: asked.append(url))
    for words in (["--password-stdin"], []):
        refused = CliRunner().invoke(build_app(), [command, "--name", "ada", *words], input="n\n")
        assert isinstance(refused.exception, InvalidInput)
        assert FOREIGN in refused.exception.detail
    assert not asked


@pytest.mark.usefixtures("kit")
def test_address_of_a_file_is_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LetheClient, "log_in", lambda *_, **__: "lethe_foreign")
    monkeypatch.setattr(LetheClient, "me", lambda _: {"name": "ada"})
    first = CliRunner().invoke(build_app(), ["login", "--name", "ada"], input="y\na long password\n")
    assert (first.exit_code, FOREIGN in first.output) == (0, True)
    again = CliRunner().invoke(build_app(), ["login", "--name", "ada"], input="a long password\n")
    assert again.exit_code == 0
    assert get_token(find_server()) == "lethe_foreign"
