"""The processes of docker-compose.yml without Docker: its commands with its environment, user, mounts and limits.

Each service runs as its user in namespaces of its own for mounts and processes: a read-only root with the system's
programs, the project, and the folders that the image makes; its volumes as folders, its `tmpfs` and `/dev/shm` with
their sizes; no capability is left, no new privilege can be had, and control groups hold memory and processes where this
machine lets us make them. Addresses are of this machine's own PostgreSQL and Redis. What only Docker does is not here:
its images, networks, and the filters of seccomp and AppArmor.
"""

import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from numba.core.caching import _CacheLocator

ROOT = Path(__file__).parents[2]
CGROUPS = Path("/sys/fs/cgroup")
SYSTEM = tuple(Path("/", name) for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "etc"))
UNITS = {"m": 1 << 20, "g": 1 << 30}


@dataclass
class Compose:
    """The services of the file, with the values of its example and these instead of the example's."""

    folder: Path
    values: dict[str, str]
    addresses: dict[str, str]  # settings that name other containers
    sockets: tuple[Path, ...]  # folders that the processes reach PostgreSQL and Redis in
    port: int
    path: tuple[Path, ...] = ()  # of programs that only an image has
    started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    groups: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.services: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
        self.folder.chmod(0o755)

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Start a service in the background."""
        log = self.folder / f"{name}.log"
        self.started[name] = self._popen(name, self._command(name), stdin=subprocess.DEVNULL, log=log)
        return self.started[name]

    def run(self, name: str, command: list[str] | None = None, *, given: str = "") -> str:
        """Run a command in a service's place to its end, the service's own if none is given. Return what it said."""
        log = self.folder / f"{name}-{secrets.token_hex(4)}.log"
        process = self._popen(name, command or self._command(name), stdin=subprocess.PIPE, log=log)
        process.communicate(given.encode(), timeout=600)
        said = log.read_text(errors="replace")
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

    def _popen(self, name: str, command: list[str], *, stdin: int, log: Path) -> subprocess.Popen[bytes]:
        script = self._script(name, command)
        script = "".join(f"echo 0 > {group}/cgroup.procs\n" for group in self._limits(name)) + script
        unshare = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
        with log.open("ab") as file:
            return subprocess.Popen(
                [*unshare, "sh", "-euc", script], stdin=stdin, stdout=file, stderr=file, env=self._environment(name)
            )

    def _script(self, name: str, command: list[str]) -> str:
        """Return what makes a container's view of the file system, then becomes the service."""
        service = self.services[name]
        root = self.folder / f"root-{secrets.token_hex(4)}"
        steps = [f"mkdir {root}", f"mount -t tmpfs -o mode=755 none {root}", f"mkdir {root}/old"]
        for top in SYSTEM:
            if top.is_symlink():
                steps.append(f"cp -P {top} {root}{top}")
            elif top.is_dir():
                steps += _bound(top, root, is_read_only=True)
        steps += [f"mkdir -p {root}/proc {root}/tmp", f"mount -t proc proc {root}/proc"]
        steps += [*_bound(Path("/dev"), root), *_bound(Path("/sys"), root)]
        owner = service["user"]
        for made in _image_folders():
            steps.append(f"mkdir -p {root}{made} && chown {owner} {root}{made} && chmod 700 {root}{made}")
        for place, options in (entry.split(":") for entry in service.get("tmpfs", ())):
            steps.append(f"mkdir -p {root}{place} && mount -t tmpfs -o {options} none {root}{place}")
        steps.append(f"cp -r {_compiled_loops()} {root}/tmp/numba && chown -R {owner} {root}/tmp/numba")
        # After the scratch folders, which would hide them: a checkout may lie below /tmp.
        for path in (ROOT, Path(sys.base_prefix), Path(sys.prefix)):
            steps += [] if path.parts[1] in ("usr", "etc") else _bound(path, root, is_read_only=True)
        for path in self.sockets:
            steps += _bound(path, root)
        for volume in service.get("volumes", ()):
            source, _, target = self.filled(volume).partition(":")
            stored = self._volume(source)
            steps.append(f"mkdir -p {stored} && chown {owner} {stored} && mount --bind {stored} {root}{target}")
        steps.append(f"mount -t tmpfs -o mode=1777,size={service.get('shm_size', '64m')} none {root}/dev/shm")
        steps += [f"mount -o remount,ro {root}"] if service["read_only"] else []
        steps += [f"cd {root}", "PATH=$PATH:/usr/sbin:/sbin pivot_root . old", "umount -l /old", "cd /var/lib/lethe"]
        return "\n".join([*steps, f"exec {_unprivileged(service)} {shlex.join(command)}"])

    def _volume(self, source: str) -> Path:
        return Path(source) if source.startswith("/") else self.folder / f"volume-{source}"

    def _environment(self, name: str) -> dict[str, str]:
        given = {key: self.filled(str(value)) for key, value in self.services[name]["environment"].items()}
        image = {
            "PATH": ":".join(map(str, (Path(sys.executable).parent, *self.path, "/usr/bin", "/bin"))),
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

    def filled(self, value: str) -> str:
        """Return a value of the file with its variables filled in."""
        return re.sub(
            r"\$\{(\w+)(?::([?-])([^}]*))?\}",
            lambda found: self.values.get(found[1]) or (found[3] if found[2] == "-" else None) or "",
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
        limit = self.filled(service["mem_limit"])
        memory, processes = str(int(limit[:-1]) * UNITS[limit[-1]]), str(service["pids_limit"])
        if (CGROUPS / "cgroup.controllers").exists():
            wanted = {CGROUPS: {"memory.max": memory, "pids.max": processes}}
        else:
            wanted = {CGROUPS / "memory": {"memory.limit_in_bytes": memory}, CGROUPS / "pids": {"pids.max": processes}}
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


def _bound(path: Path, root: Path, *, is_read_only: bool = False) -> list[str]:
    """Return the steps that show a folder of this machine at its own place below another root."""
    source, target = shlex.quote(str(path)), shlex.quote(f"{root}{path}")
    steps = [f"mkdir -p {target}", f"mount --rbind {source} {target}"]
    return [*steps, f"mount -o remount,bind,ro {target}"] if is_read_only else steps


@cache
def _compiled_loops() -> Path:
    """Return numba's folder with what `make install` has compiled: a service would take half a minute for it."""
    folder = Path(tempfile.mkdtemp(prefix="numba-"))
    for file in (ROOT / "lethe").glob("**/__pycache__/*.nb[ci]"):
        own = folder / _CacheLocator.get_suitable_cache_subpath(str(file.parents[1] / "module.py"))
        own.mkdir(exist_ok=True)
        shutil.copy2(file, own)
    return folder


def _image_folders() -> list[str]:
    """Return the folders that the image's recipe makes for its user."""
    made = re.search(r"install -d -o 10001 -g 10001 -m 0700 (.+)$", (ROOT / "docker" / "Dockerfile").read_text(), re.M)
    if made is None:
        raise ValueError("docker/Dockerfile makes no folders for its user")
    return made[1].split()


def _unprivileged(service: dict[str, Any]) -> str:
    """Return the command that becomes the service's user, with what its security options leave."""
    user, group = service["user"].split(":")
    words = ["setpriv", "--reuid", user, "--regid", group, "--clear-groups"]
    if service["cap_drop"] == ["ALL"]:
        words += ["--bounding-set", "-all", "--inh-caps", "-all"]
    if "no-new-privileges:true" in service["security_opt"]:
        words.append("--no-new-privs")
    return shlex.join(words)


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
