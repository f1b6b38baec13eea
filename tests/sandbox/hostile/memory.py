"""Memory without end."""

import mmap
import os
import sys
import time

import torch


def memory_address_space(*_):
    """Tries to reserve the whole address space. Must end in: out-of-memory|exception"""
    kept = [mmap.mmap(-1, 1 << 44)]


def memory_bomb(*_):
    """Tries to use up the host's memory. Must end in: out-of-memory"""
    kept = []
    while True:
        kept.append(bytearray(16 << 20))


def memory_many_processes(*_):
    """Tries to use memory in many processes. Must end in: out-of-memory"""
    for _number in range(12):
        if os.fork() == 0:
            kept = bytearray(os.urandom(1)) * (48 << 20)
            time.sleep(60)
    time.sleep(60)


def memory_recursion(*_):
    """Tries to overflow the stack. Must end in: out-of-memory|exception|killed"""
    sys.setrecursionlimit(10**9)

    def deeper():
        return deeper() + 1

    deeper()


def memory_shared(*_):
    """Tries to use memory that no process owns. Must end in: out-of-memory"""
    kept = [mmap.mmap(-1, 16 << 20) for _number in range(64)]
    for page in kept:
        page.write(b"x" * (16 << 20))
    time.sleep(60)


def memory_torch(*_):
    """Tries to use up memory through torch. Must end in: out-of-memory"""
    kept = []
    while True:
        kept.append(torch.ones(4 << 20))
