"""The processes of docker-compose.yml without Docker: its commands with its environment, user, mounts and limits.

Each service runs as the image's user in namespaces of its own for mounts and processes: the root is read-only, volumes
are folders, `tmpfs` are such, no capability is left, no new privilege can be had, and control groups hold memory
and processes where this machine lets us make them. Addresses are of this machine's own PostgreSQL and Redis. What only
Docker does is not here: its images, networks, and the filters of seccomp and AppArmor.
"""

import os
import re
import secrets
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CGROUPS = Path("/sys/fs/cgroup")
USER = 10001
UNITS = {"m": 1 << 20, "g": 1 << 30}


@dataclass
class Compose:
    """The services of the file, with the values of its example and these instead of the example's."""

    folder: Path
    values: dict[str, str]
    addresses: dict[str, str]  # settings that name other containers
    sockets: tuple[Path, ...]  # folders that the processes reach PostgreSQL and Redis in
    port: int
    started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    groups: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.services: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
        self.folder.chmod(0o755)

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Start a service in the background."""
        self.started[name] = self._popen(name, self._command(name), stdin=subprocess.DEVNULL)
        return self.started[name]

    def run(self, name: str, command: list[str] | None = None, *, given: str = "") -> str:
        """Run a command in a service's place to its end, the service's own if none is given. Return what it said."""
        process = self._popen(name, command or self._command(name), stdin=subprocess.PIPE)
        process.communicate(given.encode(), timeout=300)
        said = self.log(name)
        if process.returncode:
            raise RuntimeError(f"{name} ended with {process.returncode}:\n{said[-3000:]}")
        return said

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def stop(self, name: str) -> int:
        """Ask a service to end, as Docker does, within its grace period. Return its exit status."""
        process = self.started.pop(name)
        grace = self.services[name].get("stop_grace_period", "10s")
        seconds = int(grace[:-1]) * (60 if grace.endswith("m") else 1)
        for child in _children(process.pid):  # the process with the number 1 in its own namespace
            os.kill(child, signal.SIGTERM)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def close(self) -> None:
        for process in self.started.values():
            for child in _children(process.pid):  # with the first process of its namespace all others there end
                os.kill(child, signal.SIGKILL)
            process.wait()
        for group in self.groups:
            _remove(group)

    def _popen(self, name: str, command: list[str], *, stdin: int) -> subprocess.Popen[bytes]:
        script = self._script(name, command)
        script = "".join(f"echo 0 > {group}/cgroup.procs\n" for group in self._limits(name)) + script
        unshare = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [*unshare, "sh", "-euc", script], stdin=stdin, stdout=log, stderr=log, env=self._environment(name)
            )

    def _script(self, name: str, command: list[str]) -> str:
        """Return what makes a container's view of the file system, then becomes the service."""
        mounts = [
            f"mkdir -p {source} && chown {USER}:{USER} {source}"
            for source in (self.folder / "storage", self._home(name))
        ]
        shown = [ROOT, Path(sys.base_prefix), Path(sys.prefix), *self.sockets]
        kept = self.folder / f"kept-{secrets.token_hex(4)}"
        mounts.append(f"mkdir -p {kept}")
        for number, path in enumerate(shown):
            mounts.append(f"mkdir -p {kept}/{number} && mount --rbind {path} {kept}/{number}")
        for part in ("storage", self._home(name).name):
            mounts.append(f"mkdir -p {kept}/{part} && mount --bind {self.folder / part} {kept}/{part}")
        mounts.append(f"mount -t tmpfs none /run && mkdir /run/kept && mount --rbind {kept} /run/kept")
        mounts.append("mount -t tmpfs -o size=1g,mode=1777 none /tmp")
        for top in sorted({Path(*path.parts[:2]) for path in shown if path.parts[1] not in ("usr", "tmp")}):
            mounts.append(f"mount -t tmpfs -o mode=755 none {top}")
        mounts += [f"mkdir -p {path} && mount --rbind /run/kept/{n} {path}" for n, path in enumerate(shown)]
        mounts += ["mount -t tmpfs -o mode=755 none /var/lib", "mkdir -p /var/lib/lethe/home /var/lib/lethe/storage"]
        mounts.append(f"chown {USER}:{USER} /var/lib/lethe")
        mounts.append("mount --bind /run/kept/storage /var/lib/lethe/storage")
        mounts.append(f"mount --bind /run/kept/{self._home(name).name} /var/lib/lethe/home")
        mounts += ["mount -o remount,bind,ro /", "mount -o remount,bind,ro /var/lib || true", "cd /var/lib/lethe"]
        drop = (
            f"setpriv --reuid {USER} --regid {USER} --clear-groups --no-new-privs --bounding-set -all --inh-caps -all"
        )
        return "\n".join([*mounts, f"exec {drop} {shlex.join(command)}"])

    def _home(self, name: str) -> Path:
        return self.folder / f"home-{name}"

    def _environment(self, name: str) -> dict[str, str]:
        given = {key: self._filled(str(value)) for key, value in self.services[name]["environment"].items()}
        image = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "PYTHONSAFEPATH": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "LETHE_HOME": "/var/lib/lethe/home",
            "GOMP_SPINCOUNT": "0",
            "NUMBA_CACHE_DIR": "/tmp/numba",
            "HOME": "/var/lib/lethe",
            "OMP_NUM_THREADS": "1",
        }
        return image | given | self.addresses

    def _filled(self, value: str) -> str:
        return re.sub(
            r"\$\{(\w+)(?::([?-])([^}]*))?\}",
            lambda found: self.values.get(found[1]) or (found[3] if found[2] == "-" else ""),
            value,
        )

    def _command(self, name: str) -> list[str]:
        command = self.services[name].get("command")
        if command is None:
            dockerfile = (ROOT / "docker" / "Dockerfile").read_text()
            stage = dockerfile.split(f" AS {self.services[name]['build']['target']}\n")[1].split("\nFROM ")[0]
            command = yaml.safe_load(stage.split("\nCMD ")[1].splitlines()[0])
        words = [str(word).replace("$$", "$").replace("/opt/lethe/app", str(ROOT)) for word in command]
        if "--port" in words:
            words[words.index("--port") + 1] = str(self.port)
            words[words.index("--host") + 1] = "127.0.0.1"
        return words

    def _limits(self, name: str) -> list[Path]:
        """Return control groups with the service's limits, none where this machine lets us make none."""
        service = self.services[name]
        limit = self._filled(service["mem_limit"])
        memory, processes = str(int(limit[:-1]) * UNITS[limit[-1]]), str(service["pids_limit"])
        if (CGROUPS / "cgroup.controllers").exists():
            wanted = {CGROUPS: {"memory.max": memory, "pids.max": processes}}
        else:
            wanted = {
                CGROUPS / "memory": {"memory.limit_in_bytes": memory},
                CGROUPS / "pids": {"pids.max": processes},
            }
        made = []
        for parent, values in wanted.items():
            group = parent / f"lethe-compose-{os.getpid()}-{name}-{secrets.token_hex(3)}"
            try:
                group.mkdir()
                made.append(group)
                for file, value in values.items():
                    (group / file).write_text(value)
            except OSError:
                break
        self.groups += made
        return made


def _remove(group: Path) -> None:
    """Remove a control group, whose last processes may still be ending."""
    deadline = time.monotonic() + 10
    while True:
        try:
            group.rmdir()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
