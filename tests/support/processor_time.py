"""Processor seconds of each test file, its processes included: make test ARGS="-p tests.support.processor_time".

Counted is what each test process has used, its living descendants, and those that somebody waited for. What a process
did since the last test that was killed, or that no process waits for, is not seen.
"""

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

SHOWN = 40
STARTING = "to start, collect and set up the first test"
_TICKS = os.sysconf("SC_CLK_TCK")
_by_file: Counter[str] = Counter()
_seen = 0.0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> object:
    global _seen  # noqa: PLW0603 - one process, one clock
    report = yield
    if call.when == "setup" and not _seen:
        _seen = report.started_s = processor_seconds(os.getpid())
    if call.when == "teardown":
        now = processor_seconds(os.getpid())
        # What was killed is no longer seen. pytest-xdist sends a report's attributes along.
        report.processor_s = max(0.0, now - _seen)
        _seen = now
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _by_file[STARTING] += getattr(report, "started_s", 0.0)
    _by_file[report.nodeid.split("::")[0]] += getattr(report, "processor_s", 0.0)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    terminalreporter.section(f"processor seconds by file, {sum(_by_file.values()):.0f} in all")
    for name, seconds in _by_file.most_common(SHOWN):
        terminalreporter.write_line(f"{seconds:8.1f}  {name}")


def processor_seconds(pid: int) -> float:
    """Return user and system time of the process, of those it waited for, and of its living descendants."""
    seconds, children = 0.0, list[str]()
    with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        seconds = sum(map(int, fields[11:15])) / _TICKS
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # the thread has
                children += (thread / "children").read_text().split()
    return seconds + sum(processor_seconds(int(child)) for child in children)
