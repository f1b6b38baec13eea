"""`lethe export` and `lethe import` on an instance that never ran."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from lethe.cli.main import build_app
from server.config import get_settings
from server.migrate import is_migrated


def test_export_says_that_there_is_no_database(tmp_path: Path) -> None:
    told = CliRunner().invoke(build_app(), ["export", "digits", str(tmp_path / "a.zip")])
    assert told.exit_code != 0
    assert "lethe up" in str(told.exception) + told.output
    assert not (get_settings().home / "lethe.db").exists(), "asking makes nothing"


def test_import_makes_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "a.zip"
    archive.write_bytes(b"no archive")
    told = CliRunner().invoke(build_app(), ["import", str(archive)])
    assert told.exit_code != 0
    assert "no such table" not in str(told.exception) + told.output
    assert is_migrated(get_settings().resolved_database_url)
