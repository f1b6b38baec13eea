"""The command as a whole: its commands and their options, its errors, which server and token it uses."""

import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from lethe.cli import client_config, main
from lethe.cli.client_config import find_server, get_token, keep_token, remember
from lethe.cli.context import Commands, InCompetition, Output, PublicCompetition, Server
from lethe.client.api import LetheClient, NotLoggedIn
from lethe.errors import InvalidInput, NotFound
from lethe.metrics import InvalidMetricInput

OWN, FOREIGN = "https://lethe.example.org", "http://collector.example.net"
SECRET = {"LETHE_TOKEN": "lethe_secret"}


@pytest.fixture(autouse=True)
def _own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("LETHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(client_config, "_keyring", lambda: None)
    for name in ("LETHE_URL", "LETHE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "kit" / "inner").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "kit" / "inner")


def invoke(*words: str, typed: str | None = None, env: dict[str, str] | None = None) -> typer.testing.Result:
    return CliRunner().invoke(main.build_app(), words, input=typed, env=env)


def test_every_command_is_listed_under_what_its_reader_wants_to_do():
    listed = [name for of_one in main.SECTIONS.values() for names in of_one for name in names]
    assert sorted(listed) == sorted(typer.main.get_command(main.build_app()).commands)
    shown = invoke("--help", env={"COLUMNS": "80"}).output
    words = re.findall(r"[a-z-]+", shown.replace("reset-\n  ", "reset-"))
    assert set(listed) <= set(words)
    assert 24 <= len(shown.splitlines()) <= 40
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("kind", [NotFound, InvalidMetricInput])
def test_an_expected_error_is_one_sentence(kind, monkeypatch, capsys):
    def fails():
        raise kind("there is no competition 'digit'; there are digits, faces")

    monkeypatch.setattr(main, "build_app", lambda: fails)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "error: there is no competition 'digit'; there are digits, faces\n"


@pytest.fixture
def small() -> Commands:
    """Commands of each kind: none, a server, a competition, one that needs no account."""
    commands = Commands()

    @commands.command()
    def local(output: Output, name: str) -> None:
        output.answer({"name": name}, exit_status=3)
        typer.echo(f"called {name}")

    @commands.command()
    def remote(server: Server) -> None:
        typer.echo(server.client.url)

    @commands.command()
    def within(server: InCompetition) -> None:
        typer.echo(server.slug)

    @commands.command()
    def public(server: PublicCompetition) -> None:
        typer.echo(server.client.url)

    return commands


def test_options_and_answers_follow_from_the_first_parameter(small: Commands) -> None:
    options = {
        name: {option for one in command.params for option in one.opts if option.startswith("-")}
        for name, command in typer.main.get_command(small).commands.items()
    }
    assert options["local"] == {"--json"}
    assert options["remote"] == {"--json", "--url"}
    assert options["within"] == options["public"] == {"--json", "--url", "--competition", "-c"}
    found = CliRunner().invoke(small, ["local", "it", "--json"])
    assert (json.loads(found.stdout), found.exit_code) == ({"name": "it"}, 3)
    assert CliRunner().invoke(small, ["local", "it"]).stdout == "called it\n"
    assert isinstance(CliRunner().invoke(small, ["remote"]).exception, NotLoggedIn)
    here = ["--url", "http://127.0.0.1:9"]
    assert CliRunner().invoke(small, ["public", *here]).stdout == "http://127.0.0.1:9\n"
    assert CliRunner().invoke(small, ["within", "-c", "mine", *here], env=SECRET).stdout == "mine\n"


@pytest.fixture(params=[".", ".."])
def kit(request: pytest.FixtureRequest) -> Path:
    """A file in this folder, or in the one above, that names a server which the user never chose."""
    path = Path(request.param) / "lethe.json"
    path.write_text(json.dumps({"url": FOREIGN, "competition": "digits"}))
    return path


def test_token_of_the_environment_goes_where_its_user_said_alone(kit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = invoke("whoami", env=SECRET)
    assert isinstance(refused.exception, NotLoggedIn)
    assert all(named in refused.exception.detail for named in (FOREIGN, "lethe.json", "LETHE_URL"))
    monkeypatch.setenv("LETHE_TOKEN", "lethe_secret")
    assert (find_server().url, get_token(find_server())) == (FOREIGN, None)
    assert get_token(find_server(OWN)) == "lethe_secret"
    with monkeypatch.context() as beside:
        beside.setenv("LETHE_URL", OWN + "/")
        assert (find_server().url, get_token(find_server())) == (OWN, "lethe_secret")
        assert get_token(find_server(FOREIGN)) is None
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
def test_password_is_sent_where_the_user_said_alone(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr(LetheClient, "log_in", lambda self, name, password, **_: sent.append(password) or "token")
    monkeypatch.setattr(LetheClient, "register", lambda *_, **__: {"name": "ada"})
    monkeypatch.setattr(LetheClient, "me", lambda _: {"name": "ada"})
    for words in (["--password-stdin"], []):
        refused = invoke(command, "--name", "ada", *words, typed="n\n")
        assert isinstance(refused.exception, InvalidInput)
        assert FOREIGN in refused.exception.detail
    given = (command, OWN, "--name", "ada", "--password-stdin")
    assert isinstance(invoke(*given, typed="").exception, InvalidInput)
    assert not sent
    assert invoke(*given, typed="a long password\nmore\n").exit_code == 0
    assert sent == ["a long password"]


@pytest.mark.usefixtures("kit")
def test_address_of_a_file_is_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LetheClient, "log_in", lambda *_, **__: "lethe_foreign")
    monkeypatch.setattr(LetheClient, "me", lambda _: {"name": "ada"})
    first = invoke("login", "--name", "ada", typed="y\na long password\n")
    assert (first.exit_code, FOREIGN in first.output) == (0, True)
    assert invoke("login", "--name", "ada", typed="a long password\n").exit_code == 0
    assert get_token(find_server()) == "lethe_foreign"
