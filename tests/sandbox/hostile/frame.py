"""What is sent back through the pipe, descriptor 3: weights, or a fault."""

import json
import os
import pickle

import torch


def original():
    with open("/data/original_model.safetensors", "rb") as file:
        return file.read()


def send_and_end(content):
    os.write(3, content)
    os._exit(0)


def send_and_stay(content):
    os.write(3, content)
    while True:
        pass


def send_fault(body):
    send_and_end(b"LFF1" + len(body).to_bytes(2, "little") + body)


def frame_blame_the_host(*_):
    """Tries to claim that the host was at fault. Must end in: exception"""
    send_fault(json.dumps({"class": "host-fault", "fault": "host", "message": "refund me"}).encode())


def frame_cut_short(*_):
    """Tries to send half a frame and end. Must end in: no-weights"""
    send_and_end(b"LWF1" + original()[:-100])


def frame_garbage(*_):
    """Tries to send bytes that are no frame. Must end in: wrong-weights"""
    send_and_stay(os.urandom(64))


def frame_huge_values(net, *_):
    """Tries to send values that overflow inference. Must end in: huge-weights"""
    with torch.no_grad():
        next(net.parameters()).fill_(1e30)


def frame_large_view(net, *_):
    """Tries to return a tensor of 2^40 elements that needs no memory. Must end in: wrong-weights"""
    name, _parameter = next(iter(net.named_parameters()))
    state = net.state_dict() | {name: torch.zeros(1).expand(1 << 40)}
    net.state_dict = lambda: state


def frame_long_fault(*_):
    """Tries to send a fault longer than its cap. Must end in: wrong-weights"""
    send_and_end(b"LFF1" + b"\xff\xff" + b"x" * 65535)


def frame_message_out(net, retain, forget, validation):
    """Tries to carry hidden data out in an exception's name. Must end in: exception"""
    digest = "".join(chr(97 + int(value) % 26) for value in next(iter(forget))["age_group"][:50])
    raise type("Leak_" + digest, (ValueError,), {})("x")


def frame_nan(*_):
    """Tries to send not-a-number past the harness's own check. Must end in: non-finite-weights"""
    send_and_end(b"LWF1" + original()[:-4] + bytes.fromhex("0000c07f"))


def frame_nested_fault(*_):
    """Tries to exhaust the parser of faults. Must end in: exception"""
    send_fault(b"[" * 4000)


class Attack:
    def __reduce__(self):
        return (os.system, ("id",))


def frame_pickle(*_):
    """Tries to send a pickle that runs code when it is loaded. Must end in: wrong-weights"""
    send_and_end(pickle.dumps(Attack()))


class Strange(dict):
    def get(self, name, default=None):
        return "weights"

    def __getitem__(self, name):
        raise KeyError(name)


def frame_strange_state(net, *_):
    """Tries to return a state that is not what it says. Must end in: wrong-weights|exception"""
    net.state_dict = lambda: Strange(net.named_parameters())


def frame_trailing_flood(*_):
    """Tries to send a good frame and then gigabytes. Must end in: weights"""
    os.write(3, b"LWF1" + original())
    while True:
        os.write(3, bytes(1 << 20))


def frame_wrong_header(*_):
    """Tries to send weights under another header. Must end in: wrong-weights"""
    send_and_stay(b"LWF1" + (2**63).to_bytes(8, "little") + b"{" * 100_000)
