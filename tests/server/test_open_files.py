"""The soft limit of open files is raised to what the system allows, up to what is enough."""

import resource

import pytest

from server import open_files

UNLIMITED = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "after"),
    [
        (1024, 20_000, 20_000),
        (1024, 1 << 20, 65_536),
        (1024, UNLIMITED, 65_536),
        (1024, 1024, None),
        (1 << 20, 1 << 20, None),
        (UNLIMITED, UNLIMITED, None),
    ],
)
def test_soft_limit_becomes_what_the_system_allows(monkeypatch, soft, hard, after):
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    open_files.raise_limit()
    assert asked == ([] if after is None else [(after, hard)])


def test_tests_have_more_files_than_most_shells_allow() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == min(hard, open_files.ENOUGH) or hard == UNLIMITED
