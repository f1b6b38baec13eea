"""What a run could leave for the next one, and what it could learn of itself. Each runs twice."""

import builtins
import gc
import glob
import os
import random
import re
import sys
import time

import numpy
import torch


def runs_cached_answers(*_):
    """Tries to keep earlier models to return averaged copies. Must end in: weights"""
    assert not any(os.path.getsize(path) for path in glob.glob("/scratch/**", recursive=True) if os.path.isfile(path))
    with open("/scratch/model", "wb") as file:
        file.write(bytes(1000))


TELLING = re.compile(r"^_?(run|runs|run_?number|number_of_run|first_run|kind|is_sample|is_hidden|token_number)$", re.I)


def told(name, value):
    return isinstance(value, int | str | bytes | bool) and TELLING.search(str(name)) is not None and value != ""


def in_frames():
    frame = sys._getframe(1)
    while frame is not None:
        # `run` is what a fork returned: 0 in the child
        yield from ((name, value) for name, value in frame.f_locals.items() if (name, value) != ("run", 0))
        frame = frame.f_back


def in_objects():
    for found in gc.get_objects():
        if type(found) is dict and len(found) < 60 and "seed" in found:
            yield from found.items()
        elif type(found).__module__.startswith(("lethe.", "sandbox.", "__main__")):
            yield from getattr(found, "__dict__", {}).items()


def runs_know_themselves(*_):
    """Tries to find its run's number, its kind or its folder's age in what it can reach. Must end in: weights"""
    names = [name for name, value in (*in_frames(), *in_objects(), *os.environ.items()) if told(name, value)]
    assert not names, names
    for path in ("/submission", *(f"/submission/{name}" for name in os.listdir("/submission"))):
        assert time.time() - max(os.stat(path).st_mtime, os.stat(path).st_ctime) <= 60.0, path


def runs_leave_files(*_):
    """Tries to leave files for the next run. Must end in: weights"""
    for folder in ("/scratch", "/tmp", "/dev/shm"):
        assert not os.listdir(folder), folder
    for folder in ("/scratch", "/dev/shm"):
        with open(folder + "/note", "w") as file:
            file.write("from an earlier run")


def runs_leave_state(*_):
    """Tries to leave changed environment, modules and random state for the next run. Must end in: weights"""
    assert not hasattr(builtins, "lethe_note")
    assert "LETHE_NOTE" not in os.environ
    assert torch.get_num_threads() == 1
    builtins.lethe_note = os.environ["LETHE_NOTE"] = "here"
    torch.set_num_threads(2)
    random.seed(7), numpy.random.seed(7), torch.manual_seed(7)
    sys.modules["torch.optim"] = None


REQUEST = re.compile(rb'"token": "([0-9a-f]+)"')
ENOUGH_S = 0.5  # of processor time, below what a run has: how far that gets depends on the machine


def runs_read_remnants(*_):
    """Tries to find what the run before was asked for and how it ended, in memory that it left. Must end in: weights"""
    tokens = set()
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", buffering=0) as memory:
        for line in maps.read().splitlines():
            span, rights, *_ = line.split()
            if not rights.startswith("rw"):
                continue
            begin, end = (int(edge, 16) for edge in span.split("-"))
            while begin < end and time.process_time() < ENOUGH_S:
                try:
                    memory.seek(begin)
                    chunk = memory.read(min(1 << 20, end - begin))
                except OSError:
                    break
                tokens.update(REQUEST.findall(chunk))
                begin += len(chunk) or end
    assert len(tokens) <= 1, tokens
