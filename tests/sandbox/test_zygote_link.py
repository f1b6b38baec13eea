"""The host's end of a zygote that does not start."""

import socket
import subprocess
from pathlib import Path
from typing import IO

import pytest

from sandbox.backends.base import StartRequest
from sandbox.backends.plain import Plain
from sandbox.backends.zygote_link import ZygoteLink
from sandbox.errors import ZygoteFailed
from tests.sandbox.conftest import TEST_POLICY


class EndsAtOnce(Plain):
    """A back-end whose zygote has ended before anything is sent to it."""

    def start(
        self, request: StartRequest, *, control: socket.socket, diagnostics: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["/bin/sh", "-c", "echo no namespaces here >&2; exit 3"], stderr=diagnostics)
        process.wait()
        return process


def test_zygote_that_ends_at_once_is_quoted(tmp_path: Path) -> None:
    request = StartRequest(data_dir=tmp_path, stage_dir=tmp_path / "stage", policy=TEST_POLICY, uid=None)
    with pytest.raises(ZygoteFailed, match="ended with 3: no namespaces here"):
        ZygoteLink(EndsAtOnce(), request)
