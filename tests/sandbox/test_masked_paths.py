"""Where the platform's own packages would show in a run, however it is installed."""

from pathlib import Path

import pytest

from sandbox.backends.bubblewrap import masked_paths


def installed(site: Path) -> Path:
    for name in ("server", "worker", "torch", "lethe-1.dist-info"):
        (site / name).mkdir(parents=True)
    (site / "__editable__.lethe-1.pth").touch()
    return site


def test_own_packages_are_masked_and_others_are_not(tmp_path: Path) -> None:
    site = installed(tmp_path / "environment/lib/site-packages")
    assert masked_paths(site, prefix=tmp_path / "python") == [
        ("/opt/site/__editable__.lethe-1.pth", False),
        ("/opt/site/lethe-1.dist-info", True),
        ("/opt/site/server", True),
        ("/opt/site/worker", True),
    ]


def test_packages_in_system_library_folders_are_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = installed(tmp_path / "lib/python3/site-packages")
    monkeypatch.setattr("sandbox.backends.bubblewrap._SYSTEM_LIBRARIES", (str(tmp_path / "lib"),))
    masked = {target for target, _ in masked_paths(site, prefix=tmp_path / "python")}
    assert {"/opt/site/server", f"{site}/server"} <= masked


def test_packages_in_the_interpreters_folder_are_masked(tmp_path: Path) -> None:
    site = installed(tmp_path / "python/lib/site-packages")
    (tmp_path / "link").symlink_to(tmp_path / "python")
    for prefix in (tmp_path / "python", tmp_path / "link"):
        masked = {target for target, _ in masked_paths(site, prefix=prefix)}
        assert {"/opt/site/server", "/opt/python/lib/site-packages/server"} <= masked
        assert len(masked) == 8
