"""What stands for a notebook's shell where there is a real one: nothing is installed on whoever runs the notebook."""

import subprocess
from types import SimpleNamespace

import pytest

from lethe.runtime.notebook_shell import system


@pytest.mark.parametrize("command", ["pip install -q timm", " pip3 install timm", "conda install x", "uv pip"])
def test_installers_are_skipped_as_on_the_server(command, capsys, monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("it was run"))
    system(SimpleNamespace(user_ns={}), command)
    assert f"!{command.strip().partition(' ')[0]} was skipped: a run has no network" in capsys.readouterr().out


def test_other_commands_are_run(capfd: pytest.CaptureFixture[str]) -> None:
    system(SimpleNamespace(user_ns={}), "echo pipe installed")
    assert capfd.readouterr().out == "pipe installed\n"
