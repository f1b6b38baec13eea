"""The code that calls a submission, and the log that it writes for it."""

import atexit
import os

import torch


def harness_close_everything(*_):
    """Tries to close every descriptor. Must end in: no-weights"""
    os.closerange(0, 256)
    while True:
        pass


def harness_evil_exception(*_):
    """Tries to fail with an exception whose names are megabytes. Must end in: exception|log-limit"""
    raise type("E" * 1_000_000, (Exception,), {})("x" * 10_000)


def harness_exit_hook(*_):
    """Tries to run code after its time through an exit hook. Must end in: weights"""
    atexit.register(lambda: os.system("sleep 60"))


def harness_fake_success(*_):
    """Tries to end successfully without weights. Must end in: no-weights"""
    os._exit(0)


def harness_patch_torch(*_):
    """Tries to change torch for the code that runs after it. Must end in: weights"""
    torch.Tensor.isfinite = torch.isfinite = lambda *_: True
    torch.save = torch.load = None


def harness_patch_writer(*_):
    """Tries to change the harness's own writer. Must end in: no-weights|wrong-weights"""
    os.write = lambda descriptor, content: len(content)


def log_control_characters(*_):
    """Tries to take over the operator's terminal from the log. Must end in: weights"""
    print("\x1b]0;owned\x07\x1b[2J\x1b[31m\x00\x08\r\u202etxt")


def log_flood(*_):
    """Tries to print without end. Must end in: log-limit"""
    while True:
        print("x" * 1000)


def log_flood_raw(*_):
    """Tries to print without end past Python's own streams. Must end in: log-limit"""
    while True:
        os.write(2, bytes(1 << 16))
