"""The process that reads strangers' texts: its children do, with little time and memory for each.

`python -m server.parsing.process FD`. A few children are forked ahead. Each message on the socket FD carries one end of
a connection, and perhaps a file; whichever child receives it answers there. The kernel ends a child that goes beyond
its limits, and another takes its place. One that had much to do ends by itself, others after some texts: a fresh child
for each would cost an upload a third more. All end with the web process, whose end of FD then closes.
"""

import gc
import json
import math
import os
import resource
import signal
import socket
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from typing import IO, Any

from lethe.errors import AppError
from lethe.metrics.core.registry import metrics
from server.parsing.tasks import FILE_TASKS, TASKS

CPU_S = 3
WALL_S = 20.0
MEMORY_BYTES = 512 << 20  # address space, and twice the text
NICENESS = 10  # of what takes longer than an honest text: the web server's answers come first
NICE_AFTER_S = 0.2
MAX_CHILDREN = 2  # uploads of each web process, and as many texts for its pages
CHILDREN = 2 * MAX_CHILDREN + 2  # the last are for a dataset, and one that a page looks at
TEXTS_OF_A_CHILD = 20
FRESH_AFTER_S = 0.1  # of computing: a child that had more to do with a text reads no other
MAX_WAITING = 64
MAX_OF_ONE_ACCOUNT = 8  # waiting or being read
STARTED = b"+"  # begins a child's first line, with its number: from here on, its end is the text's fault
CLIENT_GONE = 3  # exit status of a child that finds the other side gone


@dataclass(frozen=True)
class TaskLimits:
    """What one task may take. file_bytes: the longest file that it writes. answer_bytes: what a text may become."""

    cpu_s: int = CPU_S
    wall_s: float = WALL_S
    file_bytes: int = 0
    answer_bytes: int = 16 << 20


_DATASET_LIMITS = TaskLimits(cpu_s=180, wall_s=900.0)  # gigabytes are unpacked
_TASK_LIMITS = {
    "render_markdown": TaskLimits(answer_bytes=2 << 20),  # a link that is named once and meant often grows without end
    "check_dataset": _DATASET_LIMITS,
    "propose_competition": TaskLimits(cpu_s=20, wall_s=60.0),  # names, a table and some pictures are read
    "unpack_dataset": TaskLimits(_DATASET_LIMITS.cpu_s, _DATASET_LIMITS.wall_s, file_bytes=16 << 30),
}

TOO_LONG = json.dumps({"fault": "what becomes of it is too long"}).encode()


def get_limits(task: str) -> TaskLimits:
    """Return what a task of server.parsing.tasks may take."""
    return _TASK_LIMITS.get(task, TaskLimits())


def main() -> None:
    """Keep children ready until the other side is gone."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the web process
    metrics()  # a second's modules: a child that loads them itself has little left of its time for the text
    import_module("lethe.methods.rendering")
    gc.collect()
    gc.freeze()  # what the children share stays shared
    for _ in range(CHILDREN):
        _fork(control)
    while os.waitstatus_to_exitcode(os.wait()[1]) != CLIENT_GONE:
        _fork(control)


def _fork(control: socket.socket) -> None:
    if os.fork() == 0:
        niceness = os.getpriority(os.PRIO_PROCESS, 0)
        for _ in range(TEXTS_OF_A_CHILD):
            message, descriptors, _, _ = socket.recv_fds(control, 1, 2)
            if not message:
                os._exit(CLIENT_GONE)
            began = time.process_time()
            with ExitStack() as opened:
                connection = opened.enter_context(socket.socket(fileno=descriptors[0]))
                files = [opened.enter_context(os.fdopen(number, "rb")) for number in descriptors[1:]]
                _answer(connection, *files)
            if time.process_time() - began > FRESH_AFTER_S or os.getpriority(os.PRIO_PROCESS, 0) > niceness:
                break
        os._exit(0)


def _answer(connection: socket.socket, *files: IO[bytes]) -> None:
    """Do what the connection asks for, within limits."""
    with connection.makefile("rwb") as stream:
        header = json.loads(stream.readline())
        limits = TaskLimits(**header["limits"])
        _limit(header["bytes"], limits)
        stream.write(STARTED + b"%d\n" % os.getpid())
        stream.flush()
        try:
            if files:
                stream.read()  # nothing, once the other side has read the first line: the answer follows it
                reply = {"result": FILE_TASKS[header["task"]](*files, **header["options"])}
            else:
                reply = {"result": TASKS[header["task"]](stream.read(header["bytes"]), **header["options"])}
        except AppError as error:
            reply = _refusal(error)
        except MemoryError:
            os._exit(1)  # as if the kernel had ended it
        except Exception as error:
            reply = {"fault": type(error).__name__}
        answer = json.dumps(reply).encode()
        stream.write(answer if len(answer) <= limits.answer_bytes else TOO_LONG)
    signal.setitimer(signal.ITIMER_REAL, 0)


def _refusal(error: AppError) -> dict[str, Any]:
    violations = [vars(violation) for violation in error.violations]
    return {"refused": type(error).__name__, "detail": error.detail, "summary": error.summary, "violations": violations}


def _limit(n_bytes: int, limits: TaskLimits) -> None:
    """Limit what the next text may take. Nobody handles the signals: each ends the process."""
    for what, limit in (
        (resource.RLIMIT_CPU, math.ceil(time.process_time()) + limits.cpu_s),
        (resource.RLIMIT_AS, MEMORY_BYTES + 2 * n_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
    ):
        resource.setrlimit(what, (limit, resource.getrlimit(what)[1]))
    signal.setitimer(signal.ITIMER_REAL, limits.wall_s)


if __name__ == "__main__":
    main()
