"""Nothing that somebody sends makes the log's reader obey it, or forges a line."""

import logging

import pytest
import structlog

from server import logging as server_logging

HOSTILE = "/x\x1b[2J\x9b31m\r\nfake=1\u202e\u2028"


@pytest.fixture
def _restored() -> object:
    root = logging.getLogger()
    kept, level = list(root.handlers), root.level
    yield
    root.handlers[:] = kept
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.mark.usefixtures("_restored")
@pytest.mark.parametrize("as_json", [False, True])
def test_hostile_text_is_escaped_wherever_it_stands(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    server_logging.configure(as_json=as_json)
    structlog.get_logger().info("request", path=HOSTILE, other=[HOSTILE], **{HOSTILE: 1})
    logging.getLogger("some.library").warning("refused %s", HOSTILE)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "".join(lines).isprintable()
    assert all("x1b[2J" in line for line in lines)


@pytest.mark.usefixtures("_restored")
@pytest.mark.parametrize("as_json", [False, True])
def test_hostile_exception_is_escaped(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    server_logging.configure(as_json=as_json)
    structlog.get_logger().error("unexpected", exc_info=ValueError(HOSTILE))
    written = capsys.readouterr().err
    assert not [character for character in written if not character.isprintable() and character not in "\n\t"]


@pytest.mark.usefixtures("_restored")
def test_traceback_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    server_logging.configure(as_json=False)
    structlog.get_logger().error("unexpected", exc_info=ValueError("wrong"))
    assert "\nValueError: wrong\n" in capsys.readouterr().err
