"""The command as a whole: its list of commands, its errors, a password that a program gives."""

import re

import pytest
import typer
from typer.testing import CliRunner

from lethe.cli import account_commands, main
from lethe.errors import InvalidInput, NotFound


def test_every_command_is_listed_under_what_its_reader_wants_to_do():
    app = main.build_app()
    listed = [name for of_one in main.SECTIONS.values() for names in of_one for name in names]
    assert sorted(listed) == sorted(typer.main.get_command(app).commands)
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output
    words = re.findall(r"[a-z-]+", shown.replace("reset-\n  ", "reset-"))
    assert set(listed) <= set(words)
    assert 24 <= len(shown.splitlines()) <= 40
    assert max(map(len, shown.splitlines())) <= 80


def test_an_expected_error_is_one_sentence(monkeypatch, capsys):
    def fails():
        raise NotFound("there is no competition 'digit'; there are digits, faces")

    monkeypatch.setattr(main, "build_app", lambda: fails)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "error: there is no competition 'digit'; there are digits, faces\n"


class _Client:
    """Stands for a client that remembers the password it was given."""

    passwords: list[str] = []  # noqa: RUF012

    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def log_in(self, name, password, **_):
        self.passwords.append(password)
        return "token"

    def me(self):
        return {"name": "ada"}

    def register(self, name, password, **_):
        self.passwords.append(password)
        return {"name": name}


@pytest.mark.parametrize("command", ["login", "register"])
def test_a_program_gives_the_password_on_standard_input(monkeypatch, tmp_path, command):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(account_commands, "LetheClient", _Client)
    monkeypatch.setattr(account_commands.client_config, "keep_token", lambda *_: "nowhere")
    monkeypatch.setattr(account_commands.client_config, "remember", lambda **_: None)
    given = [command, "http://127.0.0.1:9", "--name", "ada", "--password-stdin"]
    done = CliRunner().invoke(main.build_app(), given, input="a long password\nmore\n")
    assert done.exit_code == 0, done.output
    assert set(_Client.passwords) == {"a long password"}
    empty = CliRunner().invoke(main.build_app(), given, input="")
    assert isinstance(empty.exception, InvalidInput)
