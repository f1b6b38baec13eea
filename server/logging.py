"""Structured logs: JSON lines for machines, text for people. Whatever is bound to the context is in each line."""

import logging
import sys

import structlog
from structlog.typing import EventDict, Processor

QUIET = ("uvicorn.access", "httpx", "httpcore")  # each request is logged once, by our own middleware

MULTILINE_KEYS = ("exception", "stack")


def configure(*, as_json: bool, level: int = logging.INFO) -> None:
    """Send this process's log, and that of the libraries it uses, to standard error."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter(shared, as_json=as_json))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def current_request_id() -> str:
    """Return the id of the request that is being answered, or nothing outside of one."""
    return str(structlog.contextvars.get_contextvars().get("request_id", ""))


def _formatter(shared: list[Processor], *, as_json: bool) -> logging.Formatter:
    rendering: list[Processor] = (
        [structlog.processors.JSONRenderer()]
        if as_json
        # rich's tracebacks print local variables: people's files and secrets do not belong in a log
        else [
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)
        ]
    )
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            _readable,
            *rendering,
        ],
    )


def _readable(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Write characters that a terminal obeys, or that begin a line, as escapes; a traceback keeps its lines."""
    return {
        str(_escaped(name)): _escaped(value, keep="\n\t" if name in MULTILINE_KEYS else "")
        for name, value in event.items()
    }


def _escaped(value: object, *, keep: str = "") -> object:
    if not isinstance(value, str) or value.isprintable():
        return value
    return "".join(
        character if character.isprintable() or character in keep else repr(character)[1:-1] for character in value
    )
