"""`lethe install-service`: units that systemd accepts, written and removed for a user."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lethe.cli.main import build_app
from lethe.errors import HostFault
from server.cli import install_service
from server.config import Settings, get_settings

CODE = Path(__file__).parents[3]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Return what systemctl is asked, with the user's folder and the instance's in a temporary one."""
    words: list[tuple[str, ...]] = []
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in {"HOME": str(tmp_path / "a home"), "HOST": "127.0.0.1", "PORT": "8123"}.items():
        monkeypatch.setenv(f"LETHE_{name}", value)
    monkeypatch.setattr(install_service, "_systemctl", lambda *given: words.append(given))
    get_settings.cache_clear()
    return words


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
@pytest.mark.parametrize("home", ["plain", "with a space and 100% $HOME"])
def test_systemd_accepts_the_units(tmp_path: Path, home: str) -> None:
    settings = Settings(home=tmp_path / home, port=8123)
    folder = tmp_path / "units"
    folder.mkdir()
    texts = install_service.unit_texts(settings, code=CODE)
    for name, text in texts.items():
        (folder / name).write_text(text)
    found = subprocess.run(
        ["systemd-analyze", "verify", "--user", "--man=no", *(str(folder / name) for name in texts)],
        capture_output=True,
        text=True,
        check=False,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path)},
    )
    assert not [line for line in found.stderr.splitlines() if str(folder) in line or "lethe" in line], found.stderr


def test_a_service_is_written_and_removed(asked: list[tuple[str, ...]], tmp_path: Path) -> None:
    done = CliRunner().invoke(build_app(), ["install-service"])
    assert done.exit_code == 0, done.output
    assert "http://127.0.0.1:8123" in done.output
    assert "Log in as organiser / " in done.output
    folder = tmp_path / ".config" / "systemd" / "user"
    assert {path.name for path in folder.iterdir()} == set(install_service.UNITS)
    assert (tmp_path / "a home" / "lethe.db").exists()
    assert json.loads((tmp_path / "a home" / "instance.json").read_text()) == {"url": "http://127.0.0.1:8123"}
    assert asked == [("daemon-reload",), ("enable", "--now", "lethe.target")]
    assert CliRunner().invoke(build_app(), ["install-service", "--remove"]).exit_code == 0
    assert not list(folder.iterdir())
    assert asked[2] == ("disable", "--now", "lethe.target", *install_service.UNITS[:-1])
    assert (tmp_path / "a home" / "lethe.db").exists()


def test_print_changes_nothing(asked: list[tuple[str, ...]], tmp_path: Path) -> None:
    done = CliRunner().invoke(build_app(), ["install-service", "--print"])
    assert re.findall(r"^# .*/(lethe\S+)$", done.output, flags=re.MULTILINE) == list(install_service.UNITS)
    assert not asked
    assert not (tmp_path / ".config").exists()


@pytest.mark.usefixtures("asked")
def test_removing_nothing_says_so() -> None:
    found = CliRunner().invoke(build_app(), ["install-service", "--remove"])
    assert isinstance(found.exception, HostFault)
    assert "there is no service" in found.exception.detail
