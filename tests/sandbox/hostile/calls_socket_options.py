# Tries to hand the kernel a program through a socket, and to use its out-of-band data. Must end in: weights
import ctypes
import errno
import socket
import struct

ATTACH_FILTER, ATTACH_REUSEPORT_FILTER = 26, 51


def catch_error(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return error.errno
    return 0


def unlearning(net, retain, forget, validation):
    one, other = socket.socketpair()
    program = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0xFFFF))  # let all pass
    described = struct.pack("HxxxxxxP", 1, ctypes.addressof(program))
    for option in (ATTACH_FILTER, ATTACH_REUSEPORT_FILTER):
        if catch_error(one.setsockopt, socket.SOL_SOCKET, option, described) != errno.ENOPROTOOPT:
            raise AssertionError("breach")
    calls = [(one.send, b"x", socket.MSG_OOB), (one.sendmsg, [b"x"], [], socket.MSG_OOB)]
    calls += [(other.recv, 1, socket.MSG_OOB), (other.recvmsg, 1, 0, socket.MSG_OOB)]
    if any(catch_error(*call) != errno.EPERM for call in calls):
        raise AssertionError("breach")
