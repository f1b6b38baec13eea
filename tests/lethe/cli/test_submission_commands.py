"""How a submission is shown in the terminal."""

import pytest

from lethe.cli.submission_commands import _print_submission

FAILED = {
    "id": "1234",
    "filename": "mine.ipynb",
    "stage": "failed",
    "progress": None,
    "score": None,
    "refunded": False,
    "received_at": None,
}


@pytest.mark.parametrize(
    ("message", "told"), [("It broke. See mine.ipynb, cell 2, line 3.", False), ("It broke.", True), ("", True)]
)
def test_a_place_that_the_message_names_is_not_told_twice(message, told, capsys):
    failure = {"error_class": "exception", "file": "cell-02.py", "line": 3, "message": message}
    _print_submission(FAILED | {"failure": failure}, {}, as_json=False)
    assert ("cell-02.py, line 3" in capsys.readouterr().out) is told
