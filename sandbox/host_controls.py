"""Which protections a back-end gives on this host, known before any sandbox is started; the back-end with none."""

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
from sandbox.backends.bubblewrap import Bubblewrap
from sandbox.backends.zygote_link import ZygoteLink, connect
from sandbox.cgroups import GroupRoots, find_roots
from sandbox.controls import Control, Controls
from sandbox.errors import BackendUnavailable
from sandbox.policy import Isolation
from sandbox.uid_slots import FIRST_SLOT_UID, Slot


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


Backend = Bubblewrap | Plain
BACKENDS: dict[str, type[Backend]] = {"bubblewrap": Bubblewrap, "plain": Plain}


def host_controls(backend: str, *, isolation: Isolation = Isolation.RUN) -> Controls:
    """Return what a sandbox that is started here and now would have, without starting one."""
    return controls_for(
        BACKENDS[backend](),
        roots=find_roots() if backend != "plain" else GroupRoots(),
        slot_uid=expected_slot_uid(backend),
        isolation=isolation,
    )


def expected_slot_uid(backend: str) -> int | None:
    """Return a user that root would drop to, None where nobody drops."""
    return FIRST_SLOT_UID if backend == "bubblewrap" and os.geteuid() == 0 else None


def controls_for(backend: Backend, *, roots: GroupRoots, slot_uid: int | None, isolation: Isolation) -> Controls:
    """Return what stands with these control groups. slot_uid: whom root drops to, None where nobody drops."""
    group = f"cgroup-v{roots.version}"
    in_group = roots.controllers
    uid = os.geteuid() if slot_uid is None else slot_uid
    achieved = set(backend.controls)
    conditional = {
        Control.NOT_ROOT: uid != 0,
        Control.RUN_ISOLATION: isolation is Isolation.RUN and bool(achieved),
        Control.MEMORY_GROUP: "memory" in in_group,
        Control.PROCESS_GROUP: "pids" in in_group,
    }
    return Controls(
        backend=backend.name,
        isolation=isolation.value,
        memory=group if "memory" in in_group else "rlimit-and-watch",
        processes=group if "pids" in in_group else "rlimit",
        kernel_uid=uid,
        achieved=frozenset(achieved | {control for control, given in conditional.items() if given}),
    )
