"""No boundary at all: a bare zygote, for tests of the platform on machines without user namespaces."""

import os
import socket
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import IO

import sandbox
from sandbox.backends.base import StartRequest, View, guest_environment
from sandbox.backends.zygote_link import ZygoteLink, connect
from sandbox.controls import Control
from sandbox.errors import BackendUnavailable
from sandbox.uid_slots import Slot


class Plain:
    """Starts a zygote as an ordinary process. The launcher refuses it in production."""

    name = "plain"
    controls: frozenset[Control] = frozenset()

    def connect(self, request: StartRequest) -> ZygoteLink:
        if request.policy.libraries:
            raise BackendUnavailable("the back-end 'plain' runs this process's own libraries, and no older ones")
        scratch = request.stage_dir.parent / f"{request.stage_dir.name}-scratch"
        scratch.mkdir(exist_ok=True)
        view = View(data=str(request.data_dir), stage=str(request.stage_dir), scratch=str(scratch), isolates_runs=False)
        variables = guest_environment(request.policy)
        key = (self.name, *variables.items())
        return connect(partial(self.start, variables), key=key, policy=request.policy, view=view)

    def start(
        self, variables: dict[str, str], _slot: Slot | None, control: socket.socket, diagnostics: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        """Start a template."""
        root = Path(next(iter(sandbox.__path__))).parent
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "sandbox.guest.template", "--control", str(control.fileno())],
            env={**variables, "PATH": os.defpath, "PYTHONPATH": str(root), "TMPDIR": tempfile.gettempdir()},
            stdin=subprocess.DEVNULL,
            stdout=diagnostics,
            stderr=diagnostics,
            pass_fds=(control.fileno(),),
            start_new_session=True,
        )
