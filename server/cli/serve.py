"""`lethe up`: serve the instance of this machine until Ctrl-C."""

import signal
import threading

from rich.console import Console

from server.cli.seed_accounts import log_in_lines, organiser_credentials
from server.embedded.instance import RunningInstance, running
from server.private_files import instance_settings

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
