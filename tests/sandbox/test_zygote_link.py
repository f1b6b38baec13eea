"""The host's end of a template that does not start."""

import socket
import subprocess
from typing import IO

import pytest

from sandbox.backends.templates import Template
from sandbox.errors import ZygoteFailed
from sandbox.uid_slots import Slot


def end_at_once(_slot: Slot | None, _control: socket.socket, diagnostics: IO[bytes]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(["/bin/sh", "-c", "echo no namespaces here >&2; exit 3"], stderr=diagnostics)
    process.wait()
    return process


def test_template_that_ends_at_once_is_quoted() -> None:
    with pytest.raises(ZygoteFailed, match="ended with 3: no namespaces here"):
        Template(end_at_once, key="ends", slot=None)
