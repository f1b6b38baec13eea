"""Files and folders without end."""

import os


def disk_deep_folders(*_):
    """Tries to nest folders without end. Must end in: disk-limit|exception"""
    while True:
        os.mkdir("a")
        os.chdir("a")


def fill(path):
    with open(path, "wb") as file:
        while True:
            file.write(bytes(1 << 20))


def disk_fill(*_):
    """Tries to fill the host's disk. Must end in: disk-limit"""
    fill("/scratch/big")


def disk_fill_shared_memory(*_):
    """Tries to fill the host's shared memory. Must end in: disk-limit"""
    fill("/dev/shm/big")


def disk_many_files(*_):
    """Tries to use up the host's inodes. Must end in: disk-limit"""
    for number in range(1_000_000):
        open(f"/tmp/{number}", "wb").close()


def disk_sparse(*_):
    """Tries to make a file of a terabyte. Must end in: disk-limit"""
    with open("/scratch/sparse", "wb") as file:
        os.ftruncate(file.fileno(), 1 << 40)
