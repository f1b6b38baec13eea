"""One bar over several steps: it never goes back, its time left is that of the rate so far, and a log gets lines."""

import io
import threading

from lethe.cli.output import OverallProgress, Terminal


def left(*shown: tuple[float, float], at: float) -> str:
    """Return what the line says at a time, after so much was done at so many seconds."""
    now = [0.0]
    progress = OverallProgress({"training": 1.0}, console=Terminal(file=io.StringIO()), clock=lambda: now[0])
    for share, second in shown:
        now[0] = second
        progress.show("training", share)
    now[0] = at
    return progress.line()


def test_time_left_is_of_what_this_command_did() -> None:
    assert "about 30 s left" in left((0.5, 0.0), (0.6, 5.0), (0.7, 20.0), at=20.0), "half of it was done before"


def test_time_left_grows_gently_while_nothing_moves() -> None:
    shown = (0.0, 0.0), (0.5, 60.0)
    assert "about 1 min 00 s left" in left(*shown, at=60.0)
    assert "about 1 min 20 s left" in left(*shown, at=80.0)


def test_time_left_is_not_known_at_first() -> None:
    assert "not known yet" in left((0.25, 0.0), (0.25, 9.0), at=9.0)
    assert "not known yet" in left((0.0, 0.0), (0.5, 1.0), at=1.0)


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
