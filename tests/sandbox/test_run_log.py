"""Logs are shown as text that steers nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.run_log import CUT, readable_log


def test_terminal_sequences_and_direction_marks_go() -> None:
    log = b"\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b[0m\x00 \xe2\x80\xaetxt\n\tkept"
    assert readable_log(log) == "red\ufffd \ufffdtxt\n\tkept"


def test_progress_bar_keeps_its_last_state() -> None:
    assert readable_log(b"  0%\r 50%\r100%\nnext\r\nline") == "100%\nnext\nline"


def test_long_log_keeps_its_beginning_and_its_end() -> None:
    text = readable_log(b"a" * 5000 + b"b" * 50_000, max_chars=1000)
    assert len(text) == 1000
    assert text.startswith("a" * 200)
    assert CUT in text
    assert text.endswith("b" * 700)


@given(st.binary(max_size=2000), st.integers(1, 300))
def test_any_bytes_become_short_clean_text(log: bytes, max_chars: int) -> None:
    text = readable_log(log, max_chars=max_chars)
    assert len(text) <= max(max_chars, len(CUT))
    assert all(character in "\n\t" or character.isprintable() or ord(character) > 159 for character in text)
    text.encode()


@pytest.mark.parametrize("piece", [b"x", b"x\r", b"\x1b[0", b"\x1b]x", b"\x1b[ ", b"0;"], ids=repr)
def test_time_grows_with_the_length_alone(piece: bytes) -> None:
    log = b"\x1b[" + piece * (4 * 2**20 // len(piece))  # with a square in it, this would last for hours
    assert len(readable_log(log)) <= 16_384
