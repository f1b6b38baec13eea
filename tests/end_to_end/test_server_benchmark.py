"""A benchmark on a real instance: prepared, run in sandboxes and measured by its worker, also after the worker died."""

from pathlib import Path

import pytest

from lethe.benchmark import server_runs
from lethe.benchmark.plan import read_plan
from lethe.client.api import LetheClient
from lethe.reports.benchmark_tables import benchmark_tables
from tests.end_to_end.conftest import Instance, kill, wait_until
from tests.lethe.benchmark.conftest import write_files


@pytest.mark.slow
def test_a_benchmark_survives_its_worker(empty_instance: Instance, tmp_path: Path) -> None:
    client = empty_instance.organiser
    competitions = client.competitions()
    server_runs.put_benchmark(client, read_plan(write_files(tmp_path)))
    wait_until(lambda: _cell(client)["split"] == "ready")
    wait_until(lambda: _cell(client)["n_done"] > 0)
    for pid in empty_instance.workers():
        kill(pid)
    status = server_runs.wait(client, "tiny", lambda _: None, every_s=0.5)
    content = server_runs.get_results(client, "tiny")
    assert client.competitions() == competitions, "its cells are none of them"
    assert (status["left"], status["progress"][0]["n_done"], status["progress"][0]["n_failed"]) == (0, 2, 1)
    rows = content["cells"]["tiny"]["rows"]
    assert rows["broken"]["failure"].startswith("exception: ")
    assert "See unlearning.py, line 3." in rows["broken"]["failure"]
    assert rows["original"]["values"]["forget_accuracy"] == rows["original model"]["values"]["forget_accuracy"]
    for name in ("original", "exact retraining", "original model"):
        assert {"f", "score", "retdev", "umia", "accuracy_gap", "test_accuracy"} <= set(rows[name]["values"])
    entry, model = (rows[name]["values"]["f"]["value"] for name in ("original", "original model"))
    assert entry == pytest.approx(model, abs=0.1), "the same outputs, judged on other halves"
    assert len(list(benchmark_tables(content))) > 1


def _cell(client: LetheClient) -> dict[str, object]:
    return server_runs.get_status(client, "tiny")["progress"][0]
