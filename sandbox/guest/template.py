"""The template process: an interpreter that has loaded the libraries. The zygote of every sandbox is a fork of it.

It stands behind the boundary already: bubblewrap's empty root without any split or submission, no network, an empty
environment. It loads libraries and nothing else, so that a fork of it is a clean beginning. It never reads what a
zygote is started with: what it held of one sandbox, the next would find in its memory. It forks a process for each,
which reads the message, leaves the template's namespaces, and forks the zygote in its own.
"""

import argparse
import contextlib
import gc
import importlib
import json
import multiprocessing
import os
import socket
import sys
import traceback
from typing import NoReturn

from sandbox.guest import isolate, linux, zygote  # which loads torch without garbage collection

USUAL_LIBRARIES = (
    *("pandas", "PIL.Image", "matplotlib.pyplot", "IPython.core.interactiveshell", "IPython.display", "tqdm.notebook"),
    *("scipy.stats", "sklearn.linear_model", "sklearn.model_selection", "sklearn.metrics", "requests", "tabulate"),
)
_MAX_FDS = 16
_CONTROL_FD = 3
_FAILED = 70


def main() -> None:
    """Load the libraries, then serve the socket named on the command line until it closes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--control", type=int, required=True)
    parser.add_argument("--for-notebooks", action="store_true")
    arguments = parser.parse_args()
    isolate.keep_only({0: 0, 1: 1, 2: 2, _CONTROL_FD: arguments.control})  # bubblewrap's own would go on to zygotes
    control = socket.socket(fileno=_CONTROL_FD)
    linux.become_subreaper()
    zygote.stay_single_threaded()
    _fork_children()
    if arguments.for_notebooks:
        import_usual_libraries()
    gc.collect()
    gc.freeze()  # the collections of zygotes and runs then leave the shared pages alone
    isolate.use_huge_pages()
    isolate.mark_all_pages()
    zygote.send(control, {"event": "ready"})
    while control.recv(1, socket.MSG_PEEK):
        child = os.fork()
        if child == 0:
            _start_zygote(control)
        if os.waitpid(child, 0)[1] != 0:
            sys.exit("a zygote could not be started")
        _forget_the_dead()


def _fork_children() -> None:
    """Make fork the start method, as before Python 3.14: a new interpreter would import torch again."""
    if multiprocessing.get_all_start_methods()[0] != "fork":  # the first is the default
        multiprocessing.set_start_method("fork")


def import_usual_libraries() -> None:
    """Load what nearly every notebook loads, so that its runs need not."""
    for name in USUAL_LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _forget_the_dead() -> None:
    """Take leave of zygotes that have ended since."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _start_zygote(control: socket.socket) -> NoReturn:
    """Read one message, fork its zygote and end; the template adopts the zygote."""
    try:
        message, fds, _flags, _address = socket.recv_fds(control, zygote.MAX_MESSAGE, _MAX_FDS)
        control.close()
        config = json.loads(message)
        own, diagnostics, *mounts = fds
        for number in (1, 2):
            os.dup2(diagnostics, number)
        os.close(diagnostics)
        if config["isolate"]:
            isolate.enter_namespaces()
        if os.fork() == 0:  # with namespaces, process 1 in its own
            os.setsid()
            if config["isolate"]:
                isolate.build_zygotes_view(dict(zip(config["late_mounts"], mounts, strict=True)))
            zygote.serve(socket.socket(fileno=own), config)
        os._exit(0)
    except BaseException:  # whatever it is, the host reads it, and the fork must not go on as the template
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(_FAILED)


if __name__ == "__main__":
    main()
