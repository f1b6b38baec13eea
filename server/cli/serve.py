"""`lethe up`: serve the instance of this machine until Ctrl-C."""

import signal
import threading

from rich.console import Console

from server.cli.people import organiser_credentials
from server.config import get_settings
from server.embedded.instance import running

console = Console()


def serve() -> None:
    """Run web server, worker and Redis until Ctrl-C or SIGTERM."""
    settings = get_settings()
    with running(settings) as instance:
        name, password = organiser_credentials(settings)
        for line in (f"Lethe serves [bold]{instance.url}[/]", f"Log in as {name} / {password}", "Ctrl-C ends it."):
            console.print(line, highlight=False, soft_wrap=True)
        wait_for_interrupt()


def wait_for_interrupt() -> None:
    """Return at SIGINT or SIGTERM."""
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    while not asked.wait(1.0):
        pass
