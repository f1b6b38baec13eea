"""The command as a whole: its list of commands, its errors, a password that a program gives."""

import pytest
from typer.testing import CliRunner

from lethe.cli import account_commands, main
from lethe.errors import InvalidInput, NotFound


def test_every_command_is_listed_under_what_its_reader_wants_to_do():
    app = main.build_app()
    names = [main._name(command) for command in (*app.registered_commands, *app.registered_groups)]
    listed = [name for of_one in main.PANELS.values() for name in of_one]
    assert sorted(listed) == sorted(names)
    shown = CliRunner().invoke(app, ["--help"]).output
    places = [shown.index(f"─ {heading} ─") for heading in main.PANELS]
    assert places == sorted(places)
    assert "─ Commands" not in shown


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
