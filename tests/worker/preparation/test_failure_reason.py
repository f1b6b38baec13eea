"""What an organiser reads of an error of the host."""

import errno

from worker.preparation.failure_reason import get_reason


def test_error_of_the_system_is_told_without_its_path() -> None:
    error = OSError(errno.ENOSPC, "No space left on device", "/var/lib/lethe/secret-name")
    assert get_reason(error) == "OSError: No space left on device"


def test_other_text_is_not_told() -> None:
    assert "hunter2" not in get_reason(ValueError("invalid literal: 'hunter2'"))
