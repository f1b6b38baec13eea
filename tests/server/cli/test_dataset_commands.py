"""`lethe dataset` against a real application."""

from pathlib import Path

import pytest

from server.models.account import Role
from tests.server.cli.conftest import Run, answer, told, use
from tests.support.instance import Instance, make_zip


def test_dataset_is_uploaded_listed_and_deleted(
    server: Instance, lethe: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(server, monkeypatch, "olga", Role.ORGANISER)
    archive = tmp_path / "faces.zip"
    archive.write_bytes(make_zip({"images.npy": b"1", "labels.npy": b"2"}))
    assert 'root = "upload:faces"' in lethe("dataset", "upload", "faces", str(archive)).stdout
    assert [one["name"] for one in answer(lethe("dataset", "list", "--json"))] == ["faces"]
    assert "faces" in lethe("dataset", "list").stdout
    assert "is taken" in str(lethe("dataset", "upload", "faces", str(archive)).exception)
    lethe("dataset", "delete", "faces")
    assert answer(lethe("dataset", "list", "--json")) == []
    assert "no dataset called" in told(lethe("dataset", "delete", "faces"))
