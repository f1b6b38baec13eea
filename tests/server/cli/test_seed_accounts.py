"""What a start prints to log in with: the first one and every later one."""

from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

from server.cli import serve
from server.cli.seed_accounts import ORGANISER, PARTICIPANT, kept_password, log_in_lines
from server.config import Settings, get_settings


def test_passwords_are_printed_again(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    passwords = {name: kept_password(settings, name) for name in (ORGANISER, PARTICIPANT, "baseline")}
    lines = log_in_lines(settings)
    assert lines[:2] == [f"Log in as {name} / {passwords[name]}" for name in (ORGANISER, PARTICIPANT)]
    assert "lethe reset-password" in lines[2]
    assert log_in_lines(settings) == lines


def test_instance_without_a_demo_has_no_participant(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    kept_password(settings, ORGANISER)
    assert not any(PARTICIPANT in line for line in log_in_lines(settings))
    assert PARTICIPANT not in (tmp_path / "credentials.json").read_text()


def test_later_start_prints_the_demos_participant(server, monkeypatch, capsys):
    get_settings().home.mkdir(mode=0o700)
    password = kept_password(get_settings(), PARTICIPANT)

    @contextmanager
    def running(_settings: Settings):  # type: ignore[no-untyped-def]
        yield SimpleNamespace(url="http://127.0.0.1:1")

    monkeypatch.setattr(serve, "running", running)
    monkeypatch.setattr(serve, "wait_for_interrupt", lambda _instance: None)
    serve.serve()
    shown = capsys.readouterr().out
    assert f"Log in as {PARTICIPANT} / {password}" in shown
    assert f"Log in as {ORGANISER} / {kept_password(get_settings(), ORGANISER)}" in shown
