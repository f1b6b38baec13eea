"""Processes: those that are there, and those that a run starts."""

import os
import signal
import threading
import time


def read(path):
    try:
        with open(path, "rb") as entry:
            return entry.read()
    except OSError:
        return b""


def proc_hidden_mounts(*_):
    """Tries to find the hidden data's mount. Must end in: weights"""
    with open("/proc/self/mountinfo") as file:
        targets = {line.split()[4] for line in file}
    assert not [target for target in targets if "hidden" in target or "home" in target], targets


def proc_other_processes(*_):
    """Tries to see processes that are not the run's own. Must end in: weights"""
    assert [name for name in os.listdir("/proc") if name.isdigit()] == [str(os.getpid())] == ["1"]


def proc_secrets(*_):
    """Tries to find the launcher's secrets in environments and arguments. Must end in: weights"""
    for name in filter(str.isdigit, os.listdir("/proc")):
        for text in (read(f"/proc/{name}/environ"), read(f"/proc/{name}/cmdline")):
            assert not [word for word in (b"CANARY", b"secret", b"hidden") if word in text]
    assert not [name for name in os.environ if "CANARY" in name]


def proc_zygote_memory(*_):
    """Tries to read the memory of the process that forked it. Must end in: weights"""
    for pid in (os.getppid(), 2, 3):
        try:
            open(f"/proc/{pid}/mem", "rb").close()
        except OSError:
            continue
        raise AssertionError(pid)


def processes_daemon(*_):
    """Tries to leave a daemon behind. Must end in: weights"""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                time.sleep(1)
        os._exit(0)
    os.wait()


def processes_fork_bomb(*_):
    """Tries to fork without end. Must end in: process-limit|timeout|time-limit|out-of-memory"""
    while True:
        try:
            os.fork()
        except OSError:
            if os.getpid() == 1:
                raise


def processes_hold_the_pipe(*_):
    """Tries to end while a child holds the frame pipe open. Must end in: no-weights"""
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)


def processes_ignore_signals(*_):
    """Tries to ignore every signal and go on. Must end in: timeout|time-limit"""
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            continue
    while True:
        pass


def processes_kill_everything(*_):
    """Tries to kill every process it can name. Must end in: weights"""
    for target in (-1, 0, 2, 3, 4, 5):
        try:
            os.kill(target, signal.SIGCONT if target == 0 else signal.SIGTERM)
        except OSError:
            continue


def processes_kill_group(*_):
    """Tries to kill whoever watches it by a signal to its own process group. Must end in: weights"""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGKILL):
        os.kill(0, number)  # process 1 of a namespace is not hurt by it


def processes_stop_itself(*_):
    """Tries to stop instead of ending. Must end in: weights|idle|timeout"""
    os.kill(os.getpid(), signal.SIGSTOP)


def processes_thread_bomb(*_):
    """Tries to start threads without end. Must end in: process-limit|out-of-memory"""
    while True:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()


def processes_zombies(*_):
    """Tries to fill the process table with the dead. Must end in: process-limit|time-limit|timeout"""
    while True:
        if os.fork() == 0:
            os._exit(0)
