"""`lethe api` in a terminal: what strangers wrote steers it as little as a file's bytes do."""

import httpx
import pytest

from lethe.cli import api_command
from lethe.errors import InvalidInput


def answer(kind: str, content: bytes) -> httpx.Response:
    return httpx.Response(200, content=content, headers={"content-type": kind})


def test_a_terminal_gets_no_control_characters(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    api_command._print(answer("text/plain; charset=utf-8", b"before\x1b[2Jafter"))
    assert "before\\x1b[2Jafter" in capsys.readouterr().out
    with pytest.raises(InvalidInput, match="a file of 2 bytes"):
        api_command._print(answer("application/zip", b"PK"))


def test_a_pipe_gets_the_bytes(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    api_command._print(answer("text/csv", b"a,b\n\x1b"))
    api_command._print(answer("application/zip", b"PK\xff"))
    api_command._print(answer("application/json", b""))
    assert capfdbinary.readouterr().out == b"a,b\n\x1bPK\xff"
