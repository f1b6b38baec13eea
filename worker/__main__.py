"""`python -m worker`: a Celery worker; `python -m worker beat`: the scheduler. Arguments are Celery's.

Celery's own command puts the current folder before everything else, and would run a `worker.py` that lies there. So it
does while it loads modules of tasks: they are loaded here, before it starts.
"""

import gc
import sys
from collections.abc import Sequence

gc.disable()  # of the modules nothing is garbage, and looking for it takes a sixth of the time of loading them

import worker.tasks  # noqa: F401
from worker.app import app

gc.freeze()  # a collection then leaves the pages alone that the processes share
gc.enable()


def main(arguments: Sequence[str]) -> None:
    app.start(list(arguments) if arguments[:1] == ["beat"] else ["worker", *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
