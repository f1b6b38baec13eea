"""`python -m worker`: a Celery worker; `python -m worker beat`: the scheduler. Arguments are Celery's.

Celery's own command puts the current folder before everything else, and would run a `worker.py` that lies there. So it
does while it loads modules of tasks: they are loaded here, before it starts.
"""

import gc
import sys
from collections.abc import Sequence
from importlib import import_module

from lethe.errors import AppError
from server import environment
from server.private_files import instance_settings


def main(arguments: Sequence[str]) -> None:
    environment.raise_open_files_limit()
    instance_settings()
    from worker.app import TASKS, app  # noqa: PLC0415 - it reads the settings, which may be wrong

    if arguments[:1] == ["beat"]:
        app.conf.include = ()  # the scheduler sends messages by their name
        app.start(list(arguments))
        return
    gc.disable()  # of the modules nothing is garbage, and looking for it takes a sixth of the time of loading them
    for module in TASKS:
        import_module(module)
    gc.freeze()  # a collection then leaves the pages alone that the processes share
    gc.enable()
    # Celery's own heartbeat tells nobody anything here, and waits without end for a Redis that is silent: the worker
    # would hear of nothing meanwhile, not even that it is to stop.
    app.start(["worker", "--without-heartbeat", *arguments])


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except AppError as error:
        sys.exit(f"error: {error.detail}")
