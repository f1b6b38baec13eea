# Tries to find its run's number, its kind or its folder's age in what it can reach. Must end in: weights
import gc
import os
import re
import sys
import time

TELLING = re.compile(r"^_?(run|runs|run_?number|number_of_run|first_run|kind|is_sample|is_hidden|token_number)$", re.I)
PLAIN = (int, str, bytes, bool)
OURS = ("lethe.", "sandbox.", "__main__")
OLD_S = 60.0


def told(name, value):
    return isinstance(value, PLAIN) and TELLING.search(str(name)) is not None and value != ""


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
        elif type(found).__module__.startswith(OURS):
            yield from getattr(found, "__dict__", {}).items()


def unlearning(net, retain, forget, validation):
    names = [name for name, value in (*in_frames(), *in_objects(), *os.environ.items()) if told(name, value)]
    places = ("/submission", *(f"/submission/{name}" for name in os.listdir("/submission")))
    old = [time.time() - max(os.stat(path).st_mtime, os.stat(path).st_ctime) > OLD_S for path in places]
    if names or any(old):
        raise AssertionError(f"breach: {names} {old}")
