"""What of the tests runs, in which order, and what was left out and why."""

import re
from collections import Counter
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

# What one machine always has, and does soon: no PostgreSQL, browser, GPU or sandbox, no fault, no competition played,
# no model trained, no program written literally, no wheel built, no crowd, no page of the site, no text that is read
# until its limit, and no other file of more than four processor seconds (tests.support.processor_time shows them).
ELSEWHERE = tuple(
    f"tests/{place}"
    for folder, names in {
        "": ("browser/", "end_to_end/", "faults/", "sandbox/", "test_", "worker/"),
        "golden": ("trajectories/", "test_check.py"),
        "lethe": (
            *("api/", "benchmark/", "device/", "evaluation/", "huggingface/", "methods/", "preparation/", "training/"),
            *("tuning/", "test_wheel.py", "test_entry_points.py"),
            *("data/datasets/test_table.py", "reports/test_benchmark_report.py", "runtime/test_entry_environment.py"),
        ),
        "lethe/cli": tuple(f"test_{name}_command" for name in ("benchmark", "check", "methods", "metrics", "new")),
        "lethe/metrics": (
            *("scoring/test_published_attacks.py", "test_every_metric.py", "test_bad_input.py"),
            *("test_classifier_attacks.py", "test_certificates.py"),
        ),
        "server": (
            *("benchmarks/", "embedded/", "rejudging/", "web/", "test_authorisation_matrix.py", "test_crowd.py"),
            *("test_guides.py", "test_private_files.py", "test_schemathesis.py", "test_sealed.py"),
            *("test_serve.py", "test_storage.py", "evaluations/test_fairness.py"),
            *("cli/test_demo.py", "cli/test_commands.py", "cli/test_competition_commands.py", "parsing/test_client.py"),
            *("competitions/test_participation.py", "competitions/test_tasks.py", "workers/test_verification.py"),
            *("disclosure/test_hidden_values.py", "disclosure/test_fields.py", "workers/test_http_leases.py"),
            "submissions/test_hostile_uploads.py",
            "parsing/test_dataset_archive.py",
        ),
    }.items()
    for place in (f"{folder}/{name}".removeprefix("/") for name in names)
)
NEEDS = frozenset({"slow", "gpu", "browser"})
SERVERS = frozenset({"postgres_server", "private_redis"})
# The files that take minutes, so that no process is left alone with one at the end.
LONGEST_FIRST = (
    "tests/faults/",
    "tests/end_to_end/",
    "tests/sandbox/",
    "tests/test_tutorials.py",
    "tests/browser/test_pages.py",
    "tests/lethe/cli/test_new_commands.py",
    "tests/lethe/benchmark/test_execution.py",
    "tests/test_compose_processes.py",
    "tests/server/disclosure/test_hidden_values.py",
    "tests/server/test_crowd.py",
    "tests/lethe/metrics/scoring/test_published_attacks.py",
    "tests/browser/",
)
# Of these folders one process runs all files: they share what takes long to start, and mostly wait for others.
TOGETHER = ("tests/faults/", "tests/end_to_end/", "tests/sandbox/")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only what ELSEWHERE does not name")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import nothing of what is not quick."""
    if not config.getoption("--quick") or not collection_path.is_relative_to(config.rootpath):
        return None
    place = collection_path.relative_to(config.rootpath).as_posix()
    return f"{place}/".startswith(ELSEWHERE) or place.startswith(ELSEWHERE) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        left_out = [item for item in items if not _is_quick(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _is_quick(item)]
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    return next((k for k, folder in enumerate(LONGEST_FIRST) if item.nodeid.startswith(folder)), len(LONGEST_FIRST))


def _is_quick(item: pytest.Item) -> bool:
    needs = {marker.name for marker in item.iter_markers()} & NEEDS
    servers = SERVERS & set(getattr(item, "fixturenames", ()))
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    asked = any(isinstance(value, str) and value == "postgres" for value in parameters)
    return not (needs or servers or asked)


class _ByFileOrFolder(LoadFileScheduling):  # type: ignore[misc]  # its base has no types
    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in TOGETHER if nodeid.startswith(folder)), super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    return _ByFileOrFolder(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Say of what was skipped why, the most frequent reason first; a reason says what to install."""
    reasons = Counter(_reason(report.longrepr) for report in terminalreporter.stats.get("skipped", []))
    if reasons:
        terminalreporter.section("skipped, and what they need")
        for reason, count in reasons.most_common():
            terminalreporter.write_line(f"{count:5}  {reason}")


def _reason(skipped: object) -> str:
    text = skipped[2] if isinstance(skipped, tuple | list) else str(skipped)
    return re.sub(r"^Skipped: ", "", str(text))
