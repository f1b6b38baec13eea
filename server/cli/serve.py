"""`lethe up`: serve the instance of this machine until Ctrl-C; what to log in with."""

import json
import os
import secrets
import signal
import threading
from pathlib import Path

from rich.console import Console

from lethe.errors import NotFound
from server.accounts import accounts
from server.config import Settings
from server.db import Database
from server.embedded.instance import RunningInstance, running
from server.models.account import Role
from server.private_files import instance_settings

ORGANISER = "organiser"
PARTICIPANT = "participant"  # of a demo


def organiser_credentials(settings: Settings) -> tuple[str, str]:
    """Return name and password of the instance's organiser, making the account at the first call."""
    password = kept_password(settings, ORGANISER)
    with Database(settings.resolved_database_url) as database, database.write() as session:
        try:
            accounts.find(session, ORGANISER)
        except NotFound:
            accounts.register(session, name=ORGANISER, password=password, role=Role.ADMINISTRATOR)
    return ORGANISER, password


def log_in_lines(settings: Settings) -> list[str]:
    """Return what to log in with, as every start prints it: of the organiser, and of a demo's participant."""
    known = _kept(settings)
    lines = [f"Log in as {name} / {known[name]}" for name in (ORGANISER, PARTICIPANT) if name in known]
    return [*lines, "If a password was changed since: `lethe reset-password NAME` prints a link for a new one."]


def kept_password(settings: Settings, name: str) -> str:
    """Return the password kept for `name` in the home folder (readable by its owner only), making one if needed."""
    known = _kept(settings)
    if name not in known:
        known[name] = secrets.token_hex(10)
        _write_private(_file(settings), json.dumps(known, indent=2))
    return known[name]


def _kept(settings: Settings) -> dict[str, str]:
    path = _file(settings)
    known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    return known


def _file(settings: Settings) -> Path:
    return settings.home.absolute() / "credentials.json"


def _write_private(path: Path, text: str) -> None:
    temporary = path.with_suffix(".new")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    temporary.replace(path)


console = Console()


def serve() -> None:
    """Run web server, worker and Redis until Ctrl-C or SIGTERM."""
    settings = instance_settings()
    with running(settings) as instance:
        organiser_credentials(settings)
        for line in (f"Lethe serves [bold]{instance.url}[/]", *log_in_lines(settings), "Ctrl-C ends it."):
            console.print(line, highlight=False, soft_wrap=True)
        wait_for_interrupt(instance)


def wait_for_interrupt(instance: RunningInstance | None = None) -> None:
    """Return at SIGINT or SIGTERM. Raises HostFault if a process of the instance ends before."""
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    while not asked.wait(1.0):
        if instance is not None:
            instance.require_alive()
