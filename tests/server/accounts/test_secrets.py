"""Secrets that people type."""

from server.accounts.passwords import new_token


def test_a_secret_is_never_taken_for_an_option() -> None:
    assert all(new_token().isalnum() for _ in range(50))


def test_a_prefix_stays_in_front() -> None:
    assert new_token("lethe_").startswith("lethe_")
