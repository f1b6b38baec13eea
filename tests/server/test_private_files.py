"""Nobody but an instance's own user reads its files, however open its home folder and the user's umask were."""

import os
import stat
from pathlib import Path

import pytest
from sqlalchemy import text

import server
from lethe.errors import HostFault
from server.config import Settings
from server.db import Database
from server.embedded.instance import running
from server.private_files import PRIVATE, keep_private
from tests.support.forked_children import run_module

CODE = Path(server.__file__).resolve().parents[1]


def open_paths(folder: Path) -> list[str]:
    """Return what others could use of a folder, itself included, where nothing above kept them out."""
    paths = (folder, *folder.rglob("*"))
    return [f"{path} {path.lstat().st_mode:o}" for path in paths if _is_open(path)]


def _is_open(path: Path) -> bool:
    mode = path.lstat().st_mode
    return not stat.S_ISLNK(mode) and bool(mode & PRIVATE)


def open_home(folder: Path, *names: str) -> Path:
    home = folder / "home"
    home.mkdir()
    home.chmod(0o755)
    for name in names:
        (home / name).write_text("secret")
        (home / name).chmod(0o644)
    return home


def test_open_home_of_an_instance_is_closed(tmp_path: Path) -> None:
    home = open_home(tmp_path, "lethe.db", "lethe.db-wal", "secret_key")
    keep_private(home)
    assert open_paths(home) == []
    (home / "later").write_text("x")
    (home / "folder").mkdir()
    assert open_paths(home) == []


def test_open_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    home = open_home(tmp_path, "thesis.txt")
    with pytest.raises(HostFault, match=r"entered by other users \(mode 0755\).*chmod 700"):
        keep_private(home)
    assert stat.S_IMODE(home.stat().st_mode) == 0o755


def test_sticky_folder_of_everybody_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(HostFault, match="mode 1777"):
        keep_private(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_open_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    home = open_home(tmp_path, "lethe.db")
    os.chown(home, 12345, 12345)
    with pytest.raises(HostFault, match="as its owner"):
        keep_private(home)


def test_command_leaves_private_files(tmp_path: Path) -> None:
    home = open_home(tmp_path)
    environment = os.environ | {"LETHE_HOME": str(home), "PYTHONPATH": str(CODE)}
    for arguments in (["migrate"], ["create-admin", "ada"], ["gc"]):
        done = run_module("lethe.cli.main", *arguments, env=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert (home / "lethe.db").exists()
        assert open_paths(home) == []


def test_running_instance_has_private_files_only(tmp_path: Path) -> None:
    home = open_home(tmp_path)
    settings = Settings(home=home, port=0)
    with running(settings) as instance, Database(settings.resolved_database_url).read() as session:
        session.execute(text("SELECT 1"))
        instance.require_alive()
        assert {"lethe.db", "lethe.db-wal", "logs", "redis", "instance.json"} <= {path.name for path in home.iterdir()}
        assert open_paths(home) == []


def test_operator_commands_begin_with_private_files() -> None:
    """Each takes its settings from here, so a new one does too."""
    for path in (*(CODE / "server" / "cli").glob("*.py"), *(CODE / "worker" / "cli").glob("*.py")):
        assert "config import get_settings" not in path.read_text(), path
