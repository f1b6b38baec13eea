"""A benchmark on a real instance: prepared, run in sandboxes and measured by its worker, also after the worker died."""

import os
from pathlib import Path

import pytest

from lethe.benchmark import server_runs
from lethe.benchmark.plan import read_plan
from lethe.client.api import LetheClient
from lethe.reports.benchmark_tables import benchmark_tables
from server.cli.seed_accounts import organiser_credentials
from server.config import Settings
from server.embedded.instance import running
from tests.end_to_end.conftest import kill, parent_is_worker, wait_until
from tests.lethe.benchmark.conftest import write_files
from tests.support.processes import descendants


def test_a_benchmark_survives_its_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SWEEP_INTERVAL_S": "1", "LEASE_S": "30", "HEARTBEAT_S": "2"}.items():
        monkeypatch.setenv(f"LETHE_{name}", value)
    plan = read_plan(write_files(tmp_path))
    settings = Settings(home=tmp_path / "home", port=0, worker_concurrency=1)
    with running(settings) as instance, LetheClient(instance.url) as client:
        client.log_in(*organiser_credentials(settings))
        server_runs.put_benchmark(client, plan)
        wait_until(lambda: _cell(client)["split"] == "ready", within_s=180)
        wait_until(lambda: _cell(client)["n_done"] > 0, within_s=180)
        kill(_pool_process())
        status = server_runs.wait(client, "tiny", lambda _: None, every_s=0.5)
        content = server_runs.get_results(client, "tiny")
        assert client.competitions() == []
    assert (status["left"], status["progress"][0]["n_done"], status["progress"][0]["n_failed"]) == (0, 2, 1)
    rows = content["cells"]["tiny"]["rows"]
    assert rows["broken"]["failure"].startswith("exception: ")
    assert "See unlearning.py, line 3." in rows["broken"]["failure"]
    assert rows["original"]["values"]["forget_accuracy"] == rows["original model"]["values"]["forget_accuracy"]
    for name in ("original", "exact retraining", "original model"):
        assert {"f", "score", "retdev", "umia", "accuracy_gap", "test_accuracy"} <= set(rows[name]["values"])
    assert rows["original"]["values"]["f"]["value"] == rows["original model"]["values"]["f"]["value"] == 0.0
    assert len(list(benchmark_tables(content))) > 1


def _cell(client) -> dict[str, object]:
    return server_runs.get_status(client, "tiny")["progress"][0]


def _pool_process() -> int:
    """Return the process that runs shards: a child of the worker's main process."""
    family = [pid for pid, command in descendants(os.getpid()) if "-m worker" in command and "beat" in command]
    return next(pid for pid in family if parent_is_worker(pid))
