"""What of a failed run's output is shown beside its failure."""

from lethe.submission.traceback_text import last_traceback

FIRST = "Traceback (most recent call last):\n  File 'a'\nKeyError: 1"
SECOND = "Traceback (most recent call last):\n  File 'b'\nValueError: 2\n  with a second line"


def test_the_last_traceback_is_shown_whole() -> None:
    assert last_traceback(f"epoch 1\n{FIRST}\nepoch 2\n{SECOND}\n") == SECOND


def test_what_led_to_it_is_shown_as_well() -> None:
    chained = f"{FIRST}\n\nDuring handling of the above exception, another exception occurred:\n\n{SECOND}"
    assert last_traceback(f"epoch 1\n{chained}\n") == chained


def test_without_a_traceback_the_end_is_shown() -> None:
    assert last_traceback("\n".join(map(str, range(100)))).split() == [str(n) for n in range(80, 100)]
