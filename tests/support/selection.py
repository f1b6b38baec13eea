"""What of the tests runs, and what was left out and why."""

import re
from collections import Counter

import pytest
from _pytest.terminal import TerminalReporter

# What one machine always has, and does soon: no PostgreSQL, browser, GPU or sandbox, no fault, no competition played,
# no model trained.
ELSEWHERE = (
    *("tests/browser/", "tests/end_to_end/", "tests/faults/", "tests/sandbox/", "tests/test_", "tests/worker/"),
    *(f"tests/lethe/{part}/" for part in ("benchmark", "evaluation", "methods", "preparation", "training")),
    "tests/lethe/metrics/epsilon/test_reference.py",
    "tests/lethe/submission/test_public_entries.py",
)
NEEDS = frozenset({"slow", "gpu", "browser"})
SERVERS = frozenset({"postgres_server", "private_redis"})


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only what takes less than two minutes on any machine")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        left_out = [item for item in items if not _is_quick(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _is_quick(item)]


def _is_quick(item: pytest.Item) -> bool:
    needs = {marker.name for marker in item.iter_markers()} & NEEDS
    servers = SERVERS & set(getattr(item, "fixturenames", ()))
    return not needs and not servers and not item.nodeid.startswith(ELSEWHERE)


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
