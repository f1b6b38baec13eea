"""`make install`: uv where it can be had, pip elsewhere, from the places that pip is told of, hashes required."""

import subprocess

import pytest

from scripts import install


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Return the commands that are run, all of which succeed."""
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(install, "_runs", lambda *command: not commands.append(command))
    return commands


def fail(monkeypatch: pytest.MonkeyPatch, ran: list[tuple[str, ...]], word: str) -> None:
    """Let each command that holds the word fail."""
    monkeypatch.setattr(install, "_runs", lambda *command: not ran.append(command) and word not in " ".join(command))


def programs(ran: list[tuple[str, ...]]) -> list[str]:
    return [command[command.index("-m") + 1] for command in ran]


def test_uv_is_brought_by_pip_and_installs_the_rest(ran: list[tuple[str, ...]]) -> None:
    assert install.main() == 0
    assert programs(ran) == ["pip", "uv", "uv"]
    assert all("--require-hashes" in command for command in ran[:2])
    assert "--editable" in ran[2]


@pytest.mark.parametrize(
    ("broken", "asked"), [("uv.lock", ["pip", "pip", "pip"]), ("-m uv", ["pip", "uv", "pip", "pip"])]
)
def test_pip_installs_where_uv_cannot(
    ran: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, broken: str, asked: list[str]
) -> None:
    fail(monkeypatch, ran, broken)
    assert install.main() == 0
    assert programs(ran) == asked
    assert "--require-hashes" in ran[-2]


def test_a_package_that_nobody_has_fails(ran: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    fail(monkeypatch, ran, "requirements.lock")
    assert install.main() == 1
    assert "--editable" not in ran[-1]


def test_environment_comes_before_pips_own_files(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = ":env:.index-url='https://mirror/simple'\nglobal.index-url='https://other'\nglobal.find-links='/a /b'\n"
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, listed))
    settings = install.pip_settings()
    assert settings == {"index-url": "https://mirror/simple", "find-links": "/a /b"}
    words = list(install.sources(settings | {"no-index": "1"}))
    assert words[2:4] == ["--default-index", "https://mirror/simple"]
    assert [words[k + 1] for k, word in enumerate(words) if word == "--find-links"] == ["/a", "/b"]
    assert words[-1] == "--no-index"


def test_pip_of_this_environment_says_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
    assert install.pip_settings()["find-links"] == "/wheels"
