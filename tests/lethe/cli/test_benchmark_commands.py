"""`lethe benchmark`: validate, status, table, plot, report and check on a benchmark that was run."""

import csv
import io
import json
import os
import re
import signal
import time

import pytest
import typer
from typer.testing import CliRunner

from lethe.api.benchmark_result import COLUMNS
from lethe.benchmark.execution import UnfinishedBenchmark
from lethe.cli import benchmark_commands
from lethe.errors import InvalidInput
from tests.support.forked_children import forked_subprocess

runner = CliRunner()


def invoke(*arguments):
    app = typer.Typer()
    benchmark_commands.register_commands(app)
    return runner.invoke(app, ["benchmark", *map(str, arguments)])


def test_validate_counts_runs_and_status_names_every_failure(finished):
    path, out = finished
    found = json.loads(invoke("validate", path, "--json").stdout)
    assert (found["runs"], found["cells"][0]["models"]) == (12, 9)
    found = json.loads(invoke("status", path, "--out", out, "--json").stdout)
    assert found["left"] == 0
    assert found["failures"][0].startswith("tiny, broken: F: run 0: exception (")
    result = invoke("run", path, "--out", out, "--sandbox", "none")
    assert (result.exit_code, "nothing" in result.stdout) == (0, True)


@pytest.mark.slow
def test_a_further_process_works_beside_this_one(write_benchmark, tmp_path, monkeypatch):
    monkeypatch.setattr("lethe.benchmark.execution.Execution.run", lambda self: None)  # this one does nothing
    monkeypatch.setattr("lethe.cli.benchmark_source.subprocess", forked_subprocess())
    path, out = write_benchmark(), tmp_path / "out"
    path.write_text(re.sub("methods = .*", 'methods = ["original"]', path.read_text()))
    result = invoke("run", path, "--out", out, "--sandbox", "none", "--processes", "2")
    assert result.exit_code == 0
    assert list(out.glob("cells/*/runs/*/part-*.safetensors"))


@pytest.fixture
def helpers(monkeypatch):
    """What is done to each further process, none of which runs."""
    done = []

    class Helper:
        def __init__(self, command, **options) -> None:
            done.append([])

        def wait(self) -> int:
            done[-1].append("waited for")
            return 0

        def terminate(self) -> None:
            done[-1].append("terminated")

    monkeypatch.setattr("lethe.cli.benchmark_source.subprocess.Popen", Helper)
    return done


def test_what_one_process_could_not_do_another_may_end(monkeypatch, helpers, finished):
    def fail(self) -> None:
        raise UnfinishedBenchmark("not here")

    monkeypatch.setattr("lethe.benchmark.execution.Execution.run", fail)
    result = invoke("run", finished[0], "--out", finished[1], "--sandbox", "none", "--processes", "2")
    assert isinstance(result.exception, UnfinishedBenchmark)
    assert [done[0] for done in helpers] == ["waited for"], "it may still be at what this one could not do"


def test_an_ended_process_ends_the_others(monkeypatch, helpers, finished):
    monkeypatch.setattr(
        "lethe.benchmark.execution.Execution.run", lambda self: os.kill(os.getpid(), signal.SIGTERM) or time.sleep(5)
    )
    before = signal.getsignal(signal.SIGTERM)
    result = invoke("run", finished[0], "--out", finished[1], "--sandbox", "none", "--processes", "2")
    assert result.exit_code == 128 + signal.SIGTERM
    assert helpers == [["terminated", "waited for"]]
    assert signal.getsignal(signal.SIGTERM) is before


def test_tables_come_from_the_folder_alone(finished):
    assert "one cell says nothing of the order of methods" in invoke("table", finished[1], "--groups").stdout
    text = invoke("table", finished[1]).stdout
    assert all(f"| {name} |" in text for name in ("original", "finetune LR=0.05", "broken"))


def test_csv_is_one_long_table_and_one_cell_a_wide_one(finished, tmp_path):
    rows = list(csv.DictReader(io.StringIO(invoke("table", finished[1], "--format", "csv").stdout)))
    assert list(rows[0]) == list(COLUMNS)
    assert {row["status"] for row in rows if row["method"] == "broken"} == {"failed"}
    (f,) = (row for row in rows if (row["method"], row["metric"]) == ("exact retraining", "accuracy_gap"))
    path = tmp_path / "results.json"
    assert invoke("table", finished[1], "--format", "json", "--file", path).exit_code == 0
    (cell,) = json.loads(path.read_text())["cells"]
    stored = json.loads(path.read_text())["cells"][cell]["rows"]["exact retraining"]["values"]["accuracy_gap"]
    assert (float(f["value"]), float(f["low"])) == (stored["value"], stored["interval"][0])
    wide = list(csv.DictReader(io.StringIO(invoke("table", path, "--format", "csv", "--wide", cell).stdout)))
    assert [row["method"] for row in wide][:3] == ["original", "finetune LR=0.05", "broken"]
    assert wide[2]["accuracy_gap"] == "F"
    for text_format in ("md", "csv", "latex"):
        assert invoke("table", path, "-f", text_format).stdout == invoke("table", finished[1], "-f", text_format).stdout


def test_a_plot_is_written(finished, tmp_path):
    assert invoke("plot", finished[1], "pareto", tmp_path / "p.svg").exit_code == 0
    assert (tmp_path / "p.svg").read_text().count("<svg") == 1


def test_check_reads_a_report(finished, tmp_path):
    assert invoke("report", finished[1], "--page", tmp_path / "r.html").exit_code == 0
    result = invoke("check", tmp_path / "r.html", "--json")
    found = json.loads(result.stdout)
    broken = [each for each in found if each["hard"] and each["holds"] is False]
    assert result.exit_code == (benchmark_commands.FAILED if broken else 0)
    assert any(each["holds"] is True for each in found)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("table", "EMPTY"), "holds no benchmark's results"),
        (("check", "EMPTY"), "holds no benchmark's results"),
        (("report", "EMPTY"), "holds no benchmark's results"),
        (("table", "RESULTS", "--format", "pdf"), "no format 'pdf'; there are md, csv, latex, json, parquet"),
        (("run", "FILE", "--server", "--processes", "2"), "for this machine"),
    ],
)
def test_what_cannot_be_done_is_refused(words, said, finished, tmp_path):
    places = {"EMPTY": tmp_path, "RESULTS": finished[1], "FILE": finished[0]}
    result = invoke(*(places.get(word, word) for word in words))
    assert isinstance(result.exception, InvalidInput)
    assert said in result.exception.detail


def test_check_of_an_installed_package_takes_nothing_of_the_current_folder(finished, monkeypatch, tmp_path):
    path, out = finished
    (tmp_path / "benchmarks" / "papers").mkdir(parents=True)
    (tmp_path / "benchmarks" / "papers" / "orderings.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("lethe.__file__", str(tmp_path / "site-packages" / "lethe" / "__init__.py"))
    result = invoke("check", path, "--out", out)
    assert isinstance(result.exception, InvalidInput)
    assert result.exception.detail.startswith("lethe benchmark check needs a checkout of Lethe")
