"""Whatever could be reached through a socket."""

import socket

# Family, kind, and where it would be sent to; without one, the socket itself is the breach.
ATTEMPTS = {
    "a service of the host by an abstract unix socket": (socket.AF_UNIX, socket.SOCK_STREAM, "\0lethe-canary"),
    "a service on the host's loopback": (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 47113)),
    "the internet by TCP": (socket.AF_INET, socket.SOCK_STREAM, ("1.1.1.1", 443)),
    "the loopback over IPv6": (socket.AF_INET6, socket.SOCK_STREAM, ("::1", 47113)),
    "a name server by a datagram": (socket.AF_INET, socket.SOCK_DGRAM, ("8.8.8.8", 53)),
    "the kernel's crypto": (socket.AF_ALG, socket.SOCK_SEQPACKET, None),
    "the network's configuration through netlink": (socket.AF_NETLINK, socket.SOCK_RAW, None),
    "packets": (socket.AF_PACKET, socket.SOCK_RAW, None),
    "raw datagrams": (socket.AF_INET, socket.SOCK_RAW, None),
    "the hypervisor's host through VSOCK": (socket.AF_VSOCK, socket.SOCK_STREAM, None),
}


def network_sockets(*_):
    """Tries to reach services of the host, the kernel and the internet. Must end in: weights"""
    reached = []
    for what, (family, kind, address) in ATTEMPTS.items():
        try:
            with socket.socket(family, kind) as attempt:
                attempt.settimeout(1)
                if address:
                    attempt.connect(address)
                    attempt.send(b"lethe")
        except OSError:
            continue
        reached.append(what)
    assert not reached, reached


def network_resolver(*_):
    """Tries to resolve a name. Must end in: weights"""
    try:
        socket.getaddrinfo("example.org", 443)
    except OSError:
        return
    raise AssertionError
