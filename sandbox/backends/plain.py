"""No boundary at all: a bare zygote, for tests of the platform on machines without user namespaces."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO

import sandbox
from sandbox.backends.base import StartRequest, View, guest_environment
from sandbox.backends.zygote_link import ZygoteLink
from sandbox.controls import Control
from sandbox.errors import BackendUnavailable
from sandbox.policy import RunPolicy


class Plain:
    """Starts a zygote as an ordinary process. The launcher refuses it in production."""

    name = "plain"
    controls: frozenset[Control] = frozenset()

    def kernel_uid(self) -> int:
        return os.geteuid()

    def group_policy(self, policy: RunPolicy) -> RunPolicy:
        return policy

    def connect(self, request: StartRequest) -> ZygoteLink:
        if request.policy.libraries:
            raise BackendUnavailable("the back-end 'plain' runs this process's own libraries, and no older ones")
        return ZygoteLink(self, request)

    def view(self, request: StartRequest) -> View:
        scratch = request.stage_dir.parent / f"{request.stage_dir.name}-scratch"
        scratch.mkdir(exist_ok=True)
        return View(data=str(request.data_dir), stage=str(request.stage_dir), scratch=str(scratch), isolates_runs=False)

    def start(
        self, request: StartRequest, *, control: socket.socket, diagnostics: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        root = Path(next(iter(sandbox.__path__))).parent
        environment = {**guest_environment(request.policy), "PATH": os.defpath, "PYTHONPATH": str(root)}
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "sandbox.guest.zygote", "--control", str(control.fileno())],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=diagnostics,
            stderr=diagnostics,
            pass_fds=(control.fileno(),),
            start_new_session=True,
        )
