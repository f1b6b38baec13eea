# Tries to be told what others do in the host's folders, and to hold leases there. Must end in: weights
import fcntl
import os

SET_LEASE, NOTIFY, SET_OWNER, SET_PIPE_SIZE = 1024, 1026, 8, 1031


def refused(fd, command, value):
    try:
        fcntl.fcntl(fd, command, value)
    except OSError as error:
        return error.errno == 1
    return False


def unlearning(net, retain, forget, validation):
    folder, file = os.open("/data", os.O_RDONLY), os.open("/scratch/own", os.O_RDWR | os.O_CREAT)
    attempts = [(folder, NOTIFY, 1), (file, SET_LEASE, 1), (file, SET_OWNER, 1), (os.pipe()[0], SET_PIPE_SIZE, 1 << 20)]
    if not all(refused(*attempt) for attempt in attempts):
        raise AssertionError("breach")
