"""A failure's line is told once."""

from lethe.submission.traceback_text import place_beside


def test_place_stands_beside_a_message_without_it() -> None:
    assert place_beside("It broke after 14 epochs.", file="mine.py", line=4) == " (mine.py, line 4)"


def test_place_is_not_told_twice() -> None:
    assert place_beside("It broke. See mine.py, line 4.", file="mine.py", line=4) == ""
    assert place_beside("It broke. See mine.py, line 41.", file="mine.py", line=4) == " (mine.py, line 4)"


def test_place_that_is_unknown_is_left_out() -> None:
    assert place_beside("It broke.", file="", line=0) == place_beside("It broke.", file=None, line=None) == ""
