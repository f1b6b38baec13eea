"""Time without end, computing or waiting."""

import os
import re
import time


def time_dribble(*_):
    """Tries to send the frame a byte at a time to hold the worker. Must end in: idle|timeout"""
    for byte in b"LWF1" + bytes(1000):
        os.write(3, bytes([byte]))
        time.sleep(0.2)


class Endless(Exception):
    def __str__(self):
        while True:
            pass


def time_in_exception(*_):
    """Tries to run for ever while its exception is printed. Must end in: timeout|time-limit"""
    raise Endless


def time_loop(*_):
    """Tries to run for ever. Must end in: timeout|time-limit"""
    while True:
        pass


def time_loop_in_import(*_):
    """Tries to run for ever before the function is called. Must end in: timeout|time-limit"""
    time_loop()


def time_nearly_idle(*_):
    """Tries to occupy a worker with a heartbeat of work. Must end in: idle|timeout"""
    while True:
        time.sleep(0.5)


def time_regex(*_):
    """Tries to hold the interpreter's lock in one call. Must end in: timeout|time-limit"""
    re.match("(a+)+$", "a" * 64 + "b")


def time_sleep(*_):
    """Tries to occupy a worker without doing anything. Must end in: idle"""
    time.sleep(3600)
