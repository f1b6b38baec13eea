# Tries to lock a file of the host's, for a run beside it to see. Must end in: weights
import fcntl
import struct

FILE = "/data/network.json"


def unlearning(net, retain, forget, validation):
    with open(FILE) as one, open(FILE) as other:
        fcntl.flock(one, fcntl.LOCK_EX)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where the first is a real one
        wanted = struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 1, 0)
        fcntl.fcntl(one, fcntl.F_OFD_SETLK, wanted)
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 1, 0)
        held, *_ = struct.unpack("hhqqi4x", fcntl.fcntl(other, fcntl.F_OFD_GETLK, asked))
        if held != fcntl.F_UNLCK:
            raise AssertionError("breach")
