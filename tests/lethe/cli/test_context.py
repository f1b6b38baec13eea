"""The options that a command gets by its first parameter, and how it answers."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from lethe.cli.context import Commands, InCompetition, Output, PublicCompetition, Server
from lethe.client.api import NotLoggedIn


@pytest.fixture(autouse=True)
def _no_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("LETHE_TOKEN", raising=False)
    monkeypatch.chdir(tmp_path)


def app() -> Commands:
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


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("local", {"--json"}),
        ("remote", {"--json", "--url"}),
        ("within", {"--json", "--url", "--competition", "-c"}),
        ("public", {"--json", "--url", "--competition", "-c"}),
    ],
)
def test_options_follow_from_the_first_parameter(name: str, options: set[str]) -> None:
    command = typer.main.get_command(app()).commands[name]
    assert {option for one in command.params for option in one.opts if option.startswith("-")} == options


def test_json_answer_ends_the_command() -> None:
    found = CliRunner().invoke(app(), ["local", "it", "--json"])
    assert (json.loads(found.stdout), found.exit_code) == ({"name": "it"}, 3)
    assert CliRunner().invoke(app(), ["local", "it"]).stdout == "called it\n"


def test_token_is_needed_where_the_server_is_asked() -> None:
    assert isinstance(CliRunner().invoke(app(), ["remote"]).exception, NotLoggedIn)
    found = CliRunner().invoke(app(), ["public", "--url", "http://127.0.0.1:9"])
    assert found.stdout == "http://127.0.0.1:9\n"


def test_competition_that_is_named_is_not_looked_for() -> None:
    found = CliRunner().invoke(app(), ["within", "-c", "mine", "--url", "http://127.0.0.1:9"], env={"LETHE_TOKEN": "t"})
    assert found.stdout == "mine\n"
