"""What an organiser reads of an error of the host."""

import errno

from worker.jobs import describe


def test_error_of_the_system_is_told_without_its_path() -> None:
    error = OSError(errno.ENOSPC, "No space left on device", "/var/lib/lethe/secret-name")
    assert describe(error) == "OSError: No space left on device"


def test_other_text_is_not_told() -> None:
    assert "hunter2" not in describe(ValueError("invalid literal: 'hunter2'"))
