"""One bar over several steps: it never goes back, its time left is that of the later half, and a log gets lines."""

import io
import threading

import pytest

from lethe.cli.output import Terminal
from lethe.cli.overall_progress import OverallProgress, TimeLeft


def test_time_left_follows_the_later_half() -> None:
    left = TimeLeft()
    for second in range(11):
        left.note(0.5 if second < 1 else 0.5 + 0.02 * second, second)
    assert left.seconds(10.0) == pytest.approx(15.0)  # a tenth in five seconds, .3 to go


def test_time_left_is_not_known_where_nothing_moves() -> None:
    left = TimeLeft()
    assert left.seconds(0.0) is None
    for second in range(10):
        left.note(0.25, second)
    assert left.seconds(9.0) is None


def test_steps_fill_one_bar_that_never_goes_back() -> None:
    progress = OverallProgress({"prepare": 30.0, "evaluate": 10.0}, console=Terminal(file=io.StringIO()))
    progress.show("prepare", 0.5)
    assert progress.line().startswith(" 38 %")
    progress.show("evaluate", 0.0, "noise: queued")
    assert progress.line().startswith(" 75 %")
    assert progress.line().endswith("noise: queued")
    progress.show("prepare", 0.1)
    assert progress.line().startswith(" 75 %")


def test_a_log_gets_lines_with_the_time_left() -> None:
    printed, now = threading.Event(), [0.0]

    class Log(io.StringIO):
        def write(self, text: str) -> int:
            if "about 10 s left" in text:
                printed.set()
            return super().write(text)

    steps = {"training": 1.0}
    log = Log()
    with OverallProgress(steps, console=Terminal(file=log), every_s=0.001, clock=lambda: now[0]) as progress:
        for second in range(11):
            now[0] = float(second)
            progress.show("training", second / 20, "model 3 of 6")
        assert printed.wait(60)
    assert " 50 %, about 10 s left: model 3 of 6\n" in log.getvalue()
