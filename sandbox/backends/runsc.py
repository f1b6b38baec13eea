"""gVisor: its own container for every run, whose kernel is a program and not the host's.

The strongest boundary and the slowest: nothing is forked, so each run imports torch again. A run's
process on the host is `runsc` itself; when it is killed, all of its container goes with it.
"""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lethe.runtime.weights_layout import ORIGINAL_MODEL
from sandbox.backends.base import RunPipes, StartRequest, guest_environment, guest_packages
from sandbox.backends.bubblewrap import INNER_UID, masked_paths
from sandbox.controls import Control
from sandbox.errors import BackendUnavailable, ZygoteFailed
from sandbox.policy import RunPolicy
from sandbox.seccomp import build_filter

_READY_TIMEOUT_S = 180.0
_NOBODY = 65534
_OWN_MEMORY_MIB = 1536  # of gVisor itself, of torch and of the data, which a zygote would hold elsewhere
_OWN_THREADS = 4096  # its own count of host threads says nothing about the guest's
_FOLDERS = (
    "proc",
    "dev",
    "dev/shm",
    "tmp",
    "scratch",
    "data",
    "submission",
    "opt/python",
    "opt/site",
)


class Runsc:
    """Starts every run in a gVisor container."""

    name = "runsc"
    controls: frozenset[Control] = frozenset(
        {Control.BOUNDARY, Control.NO_NETWORK, Control.SYSTEM_CALLS, Control.SCRATCH}
    )

    def kernel_uid(self) -> int:
        return _NOBODY if os.geteuid() == 0 else os.geteuid()

    def group_policy(self, policy: RunPolicy) -> RunPolicy:
        return replace(policy, memory_mib=policy.memory_mib + _OWN_MEMORY_MIB, processes=_OWN_THREADS)

    def connect(self, request: StartRequest) -> "RunscLink":
        if request.policy.devices:
            raise BackendUnavailable("runsc shows a run no device here: for a GPU choose the back-end 'bubblewrap'")
        program = shutil.which("runsc")
        if program is None:
            raise BackendUnavailable("runsc is missing: install gVisor (Debian: apt-get install runsc)")
        if os.geteuid() != 0:
            raise BackendUnavailable("runsc needs root to create containers; its guests still run as nobody")
        return RunscLink(program, request)


class RunscLink:
    """Makes containers, one at a time."""

    def __init__(self, program: str, request: StartRequest) -> None:
        self.ready: Mapping[str, Any] = {}
        self._program = program
        self._request = request
        self._folder = tempfile.TemporaryDirectory(prefix="lethe-runsc-")
        self._root = Path(self._folder.name) / "root"
        _make_root(self._root)
        self._process: subprocess.Popen[bytes] | None = None
        self._containers = 0

    @property
    def uid(self) -> int | None:
        return None

    @property
    def is_alive(self) -> bool:
        return True  # there is nothing between two runs that could die

    def fork(self, message: dict[str, Any]) -> RunPipes:
        """Start a shell that waits for one line before it becomes runsc, so that limits come first."""
        self._containers += 1
        bundle = Path(self._folder.name) / str(self._containers)
        bundle.mkdir()
        (bundle / "config.json").write_text(json.dumps(self._config(message)), encoding="utf-8")
        gate_read, gate_write = os.pipe()
        frame_read, frame_write = os.pipe()
        log_read, log_write = os.pipe()
        command = [*self._command(), "run", "-bundle", str(bundle), self._container()]
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", 'read -r _ && exec "$@"', "sh", *command],
                env={"PATH": os.defpath},
                stdin=gate_read,
                stdout=frame_write,
                stderr=log_write,
                cwd="/",
                start_new_session=True,
            )
        finally:
            for fd in (gate_read, frame_write, log_write):
                os.close(fd)
        gate = PipeGate(gate_write)
        policy = self._request.policy
        wanted = {
            **message,
            "policy": {**policy.to_dict(), "process_cpu_s": policy.process_cpu_s},
            "seccomp": base64.b64encode(build_filter()).decode(),
        }
        self._first_words = b"start\n" + json.dumps(wanted).encode() + b"\n"
        return RunPipes(frame_fd=frame_read, log_fd=log_read, gate=gate)

    def wait_at_gate(self, pipes: RunPipes, *, admit: Callable[[int], None]) -> int:
        process = self._living_process()
        admit(process.pid)
        pipes.gate.sendall(self._first_words)
        readable, _, _ = select.select([pipes.frame_fd], [], [], _READY_TIMEOUT_S)
        if not readable or os.read(pipes.frame_fd, 1) != b"R":
            said = os.read(pipes.log_fd, 4000).decode(errors="replace") if _has_bytes(pipes.log_fd) else ""
            self._end()
            raise ZygoteFailed(f"the container did not start: {said.strip()}")
        return process.pid

    def wait_for_exit(self, *, timeout_s: float) -> Mapping[str, Any]:
        code = self._living_process().wait(timeout=timeout_s)
        self._delete()
        by_signal = code > 128  # as runsc reports a guest's signal
        return {
            "exit_code": None if by_signal or code < 0 else code,
            "signal": code - 128 if by_signal else None,
            "cpu_s": 0.0,
            "max_rss_kib": 0,
        }

    def close(self, *, keeps_template: bool = False) -> None:
        self._end()
        self._folder.cleanup()

    def _end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
            self._delete()

    def _delete(self) -> None:
        """Remove what runsc keeps of a container that is gone."""
        deadline = time.monotonic() + 10
        command = [*self._command(), "delete", "-force", self._container()]
        while subprocess.run(command, capture_output=True, check=False).returncode and time.monotonic() < deadline:
            time.sleep(0.1)

    def _living_process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ZygoteFailed("no container has been asked for")
        return self._process

    def _container(self) -> str:
        # The folder's random name: the host has one set of names for all containers, this process any number of links.
        return f"{Path(self._folder.name).name}-{self._containers}"

    def _command(self) -> list[str]:
        state = str(Path(self._folder.name) / "state")
        return [self._program, "--root", state, "--network=none", "--ignore-cgroups", "--log=/dev/null"]

    def _config(self, message: Mapping[str, Any]) -> dict[str, Any]:
        request, policy = self._request, self._request.policy
        environment = guest_environment(policy)
        python, nothing = request.environment, self._root / "opt/lethe/sandbox/__init__.py"
        masked = masked_paths(python.site, prefix=python.prefix)
        mounts = [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
            _tmpfs("/dev/shm", policy.shared_memory_mib),  # noqa: S108 - inside
            _tmpfs("/scratch", policy.scratch_mib),
            _tmpfs("/tmp", 1),  # noqa: S108 - inside
            *(_bind(Path(name), name) for name in ("/usr/lib", "/usr/lib64") if Path(name).is_dir()),
            _bind(python.prefix, "/opt/python"),
            _bind(python.site, "/opt/site"),
            *(_tmpfs(target, 1) if is_folder else _bind(nothing, target) for target, is_folder in masked),
            *(_bind(source, f"/opt/lethe/{package}/{folder}") for package, folder, source in guest_packages()),
            _bind(request.data_dir, "/data"),
            _bind(request.stage_dir / message["code"], "/submission"),
        ]
        if message["original"]:
            mounts.append(_bind(request.stage_dir / message["original"], f"/data/{ORIGINAL_MODEL}"))
        limits = {
            "RLIMIT_NPROC": policy.processes,
            "RLIMIT_FSIZE": policy.file_size_mib * 1024 * 1024,
            "RLIMIT_NOFILE": policy.open_files,
            "RLIMIT_CORE": 0,
            "RLIMIT_CPU": int(policy.process_cpu_s) + 1,
        }
        return {
            "ociVersion": "1.0.0",
            "hostname": "lethe",
            "root": {"path": str(self._root), "readonly": True},
            "process": {
                "user": {"uid": INNER_UID, "gid": INNER_UID},
                "args": [python.inner_python, "-P", "-s", "-S", "-m", "sandbox.guest.single_run"],
                "env": [f"{name}={value}" for name, value in environment.items()],
                "cwd": "/scratch",
                "noNewPrivileges": True,
                "capabilities": {},
                "rlimits": [{"type": name, "hard": value, "soft": value} for name, value in limits.items()],
            },
            "mounts": mounts,
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")]},
        }


class PipeGate:
    """A gate that is a pipe."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def sendall(self, message: bytes, /) -> None:
        while message:
            message = message[os.write(self._fd, message) :]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._fd)


def _make_root(root: Path) -> None:
    for name in (*_FOLDERS, "usr/lib", "usr/lib64"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for package, folder, _source in guest_packages():
        (root / "opt/lethe" / package / folder).mkdir(parents=True, exist_ok=True)
        (root / "opt/lethe" / package / "__init__.py").touch()
    for name in ("lib", "lib64"):
        if Path("/", name).is_symlink():
            (root / name).symlink_to(Path("/", name).readlink())


def _bind(source: Path, target: str) -> dict[str, Any]:
    return {"destination": target, "type": "bind", "source": str(source), "options": ["ro", "rbind", "nosuid", "nodev"]}


def _tmpfs(target: str, mib: int) -> dict[str, Any]:
    options = [f"size={mib * 1024 * 1024}", "mode=1777", "nosuid", "nodev"]
    return {"destination": target, "type": "tmpfs", "source": "tmpfs", "options": options}


def _has_bytes(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])
