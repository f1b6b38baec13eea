"""Everything that a run can see, against an exact list; with a device shown, the few files that drivers read too."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.guest.driver_view import driver_files
from sandbox.launcher import Launcher, RunRequest, Sandbox, SandboxSpec
from sandbox.policy import DRIVER_FOLDER, Mount
from worker.host.gpu_sandbox import system_files

from .conftest import TEST_POLICY, write_submission

LOOK = """
import json
import os
import socket
import sys


def listing(path):
    try:
        return sorted(os.listdir(path))
    except OSError as error:
        return error.errno


def fields(path, names):
    with open(path) as file:
        pairs = dict(line.split(":", 1) for line in file)
    return {name: pairs[name].split() for name in names}


IDENTITY = "Uid Gid Groups CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp".split()


def unlearning(net, retain, forget, validation):
    # the listing itself holds one more descriptor, which is gone when it is looked at
    descriptors = {int(name): os.readlink(f"/proc/self/fd/{name}").split(":")[0]
                   for name in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{name}")}
    with open("/proc/self/mountinfo") as file:
        mounts = [line.split() for line in file]
    print(json.dumps({
        "folders": {path: listing(path) for path in
                    ("/", "/data", "/stage", "/submission", "/scratch", "/tmp", "/dev", "/dev/shm", "/opt",
                     "/opt/lethe", "/opt/lethe/sandbox", "/opt/lethe/lethe", "/usr", "/sys", "/etc", "/run", "/home")},
        "proc": [name for name in listing("/proc") if not name.isdigit()],
        "processes": [name for name in listing("/proc") if name.isdigit()],
        "environment": dict(os.environ),
        "arguments": open("/proc/self/cmdline").read().split(chr(0)),
        "argv": sys.argv,
        "descriptors": descriptors,
        "mounts": sorted({(line[4], "ro" if "ro" in line[5].split(",") else "rw") for line in mounts}),
        "mountinfo": [" ".join(line) for line in mounts],
        "status": fields("/proc/self/status", IDENTITY),
        "host": socket.gethostname(),
        "cgroup": open("/proc/self/cgroup").read().split(),
        "cwd": os.getcwd(),
        "parent": os.getppid(),
        "session": [os.getpid(), os.getsid(0), os.getpgid(0)],
    }))
"""


@pytest.fixture(scope="module")
def seen(sandbox: Sandbox, stage: Path) -> dict[str, Any]:
    result = sandbox.run(RunRequest(code_dir=write_submission(stage, "look", LOOK), kind="sample"))
    assert result.weights is not None, result.log.decode()
    found: dict[str, Any] = json.loads(result.log)
    return found


def test_folders_are_exactly_these(seen: dict[str, Any]) -> None:
    folders = seen["folders"]
    assert set(folders["/"]) - {"lib64", "lib32"} == {
        "data", "dev", "lib", "opt", "proc", "scratch", "stage", "submission", "tmp", "usr"
    }  # fmt: skip
    assert folders["/data"] == [
        "forget.safetensors",
        "network.json",
        "original_model.safetensors",
        "retain.safetensors",
        "validation.safetensors",
    ]
    assert folders["/stage"] in ([], 13)
    assert folders["/submission"] == ["submission.py"]
    assert folders["/scratch"] == folders["/tmp"] == folders["/dev/shm"] == []
    assert folders["/dev"] == [
        "fd", "full", "null", "random", "shm", "stderr", "stdin", "stdout", "urandom", "zero"
    ]  # fmt: skip
    assert folders["/opt"] == ["lethe", "python", "site"]
    assert folders["/opt/lethe"] == ["lethe", "sandbox"]
    assert folders["/opt/lethe/lethe"] == ["__init__.py", "networks", "runtime"]
    assert folders["/opt/lethe/sandbox"] == ["__init__.py", "guest"]
    assert set(folders["/usr"]) <= {"lib", "lib32", "lib64"}
    assert all(folders[path] == 2 for path in ("/sys", "/etc", "/run", "/home"))  # no such folder


def test_proc_shows_only_the_runs_own_processes(seen: dict[str, Any]) -> None:
    assert seen["processes"] == ["1"]
    assert set(seen["proc"]) == {"self", "thread-self"}
    assert seen["parent"] == 0


def test_environment_is_exactly_this(seen: dict[str, Any]) -> None:
    assert {name: value for name, value in seen["environment"].items() if name != "LD_LIBRARY_PATH"} == {
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "MKL_CBWR": "AUTO",
        "GOMP_SPINCOUNT": "0",
        "HOME": "/scratch",
        "LANG": "C.UTF-8",
        "LETHE_TRUST_NETWORK_SOURCE": "1",
        "LOGNAME": "lethe",
        "MKL_NUM_THREADS": "1",
        "NO_ALBUMENTATIONS_UPDATE": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PATH": "/opt/python/bin",
        "PWD": "/",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": "/opt/lethe:/opt/site",
        "TMPDIR": "/scratch",
        "TORCHDYNAMO_DISABLE": "1",
        "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1",
        "USER": "lethe",
        "WANDB_MODE": "offline",
        **{name: value for name, value in seen["environment"].items() if name.startswith(("TORCHINDUCTOR", "KMP"))},
    }


def test_arguments_name_nothing_of_the_host(seen: dict[str, Any]) -> None:
    arguments = [word for word in seen["arguments"] if word]
    assert arguments[0].startswith("/opt/python/bin/python3")
    assert arguments[1:-1] == ["-P", "-s", "-S", "-m", "sandbox.guest.template", "--control"]
    assert seen["argv"] == ["submission"]


def test_descriptors_are_three_standard_ones_and_the_frame_pipe(seen: dict[str, Any]) -> None:
    assert {int(number): target for number, target in seen["descriptors"].items()} == {
        0: "/dev/null",
        1: "pipe",
        2: "pipe",
        3: "pipe",
    }


def test_mounts_are_listed_and_only_scratch_is_writable(seen: dict[str, Any]) -> None:
    mounts = {target: mode for target, mode in seen["mounts"] if not target.startswith(("/opt/site/", "/lib", "/usr/"))}
    assert set(mounts) == {
        "/", "/data", "/dev", "/dev/full", "/dev/null", "/dev/random", "/dev/shm", "/dev/urandom", "/dev/zero",
        "/opt/lethe/sandbox/__init__.py", "/opt/lethe/sandbox/guest", "/opt/lethe/lethe/__init__.py",
        "/opt/lethe/lethe/networks", "/opt/lethe/lethe/runtime", "/opt/python", "/opt/site", "/proc", "/scratch",
        "/stage", "/submission", "/tmp",
    }  # fmt: skip
    writable = {target for target, mode in seen["mounts"] if mode == "rw"}
    assert writable == {"/dev/shm", "/proc", "/scratch", "/tmp"}


def test_it_has_no_privilege_and_a_filter(seen: dict[str, Any]) -> None:
    status = seen["status"]
    assert set(status["Uid"] + status["Gid"]) == {"1000"}
    assert [int(status[name][0], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")] == [0] * 5
    assert (status["NoNewPrivs"], status["Seccomp"]) == (["1"], ["2"])
    # What a user of this machine had: its own group is the sandbox's, and the kernel shows any other as nobody's.
    assert set(status["Groups"]) <= {status["Gid"][0], "65534"}


def test_names_are_neutral(seen: dict[str, Any]) -> None:
    assert seen["host"] == "lethe"
    assert seen["cwd"] == "/scratch"
    assert all(line.endswith(":/") for line in seen["cgroup"]), seen["cgroup"]
    # The kernel shows where in its file system a mount begins: test_isolation.py looks at what that tells.
    assert not [line for line in seen["mountinfo"] if "hidden" in line]


LOOK_AT_A_DEVICE = """
import ctypes, json, os, threading

def tree(folder):
    for path, folders, files in os.walk(folder, onerror=lambda error: None):
        for name in files + [name for name in folders if os.path.islink(os.path.join(path, name))]:
            yield os.path.join(path, name)

def tried(work):
    try:
        return work()
    except OSError as error:
        return error.strerror

def name_a_thread():
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as file:
        file.write("cuda")
    return open(f"/proc/self/task/{threading.get_native_id()}/comm").read().strip()

def unlearning(net, retain, forget, validation):
    others = [name for name in os.listdir("/proc") if not name.isdigit()]
    files = [path for name in others if not os.path.islink(f"/proc/{name}")
             for path in ([f"/proc/{name}"] if os.path.isfile(f"/proc/{name}") else tree(f"/proc/{name}"))]
    print(json.dumps({
        "proc": {path: open(path).read() for path in files},
        "sys": sorted(tree("/sys")),
        "written": [tried(lambda: open(path, "w").write("x")) for path in ("/proc/cpuinfo", "/proc/sys/vm/x")],
        "thread": name_a_thread(),
        "memory file": os.memfd_create("uvm") > 2,
        "loader": os.environ.get("LD_LIBRARY_PATH", ""),
        "umount": ctypes.CDLL(None).umount2(b"/proc/sys", 2),
        "stage": tried(lambda: os.listdir("/stage")),
    }))
"""


@pytest.fixture(scope="module")
def seen_of_a_device(split: Path, stage: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Look around in a run that is shown a device, though none of a GPU."""
    libraries = tmp_path_factory.mktemp("driver")
    mounts = (*system_files(), Mount(str(libraries), DRIVER_FOLDER))
    policy = replace(TEST_POLICY, devices=("/dev/null",), mounts=mounts)
    code = write_submission(stage, "looks-at-the-driver-view", LOOK_AT_A_DEVICE)
    with Launcher(SandboxSpec(data_dir=split, stage_dir=stage, policy=policy)).start() as sandbox:
        result = sandbox.run(RunRequest(code_dir=code))
    assert result.weights is not None, (result.verdict, result.log)
    found: dict[str, Any] = json.loads(result.log)
    return found


def test_driver_files_are_copies_and_all_else_is_empty(seen_of_a_device: dict[str, Any]) -> None:
    texts = {path.removeprefix("/proc/"): text for path, text in seen_of_a_device["proc"].items() if text}
    expected = {name: text for name, text in driver_files().items() if text}
    assert texts.keys() == expected.keys()
    assert texts["sys/vm/mmap_min_addr"] == expected["sys/vm/mmap_min_addr"]
    assert texts["devices"] == expected["devices"]


def test_it_sees_the_files_of_sys_that_were_named_and_no_other(seen_of_a_device: dict[str, Any]) -> None:
    assert seen_of_a_device["sys"] == sorted(mount.target for mount in system_files())


def test_it_can_write_to_none_of_them_nor_uncover_the_rest(seen_of_a_device: dict[str, Any]) -> None:
    assert seen_of_a_device["written"] == ["Read-only file system", "Read-only file system"]
    assert seen_of_a_device["umount"] == -1
    assert seen_of_a_device["stage"] in ("Permission denied", [])


def test_it_may_do_what_the_drivers_start_needs(seen_of_a_device: dict[str, Any]) -> None:
    assert seen_of_a_device["thread"] == "cuda"
    assert seen_of_a_device["memory file"]
    assert DRIVER_FOLDER in seen_of_a_device["loader"].split(":")


def make_proc(folder: Path) -> Path:
    for name, text in {
        "devices": "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n510 nvidia-uvm\n\nBlock devices:\n  8 sd\n",
        "modules": "ext4 1000000 1 - Live 0x0\nnvidia_uvm 1 0 - Live 0x0\nnvidia 9 1 nvidia_uvm, Live 0x0\n",
        "driver/nvidia/params": "DeviceFileUID: 0\nModifyDeviceFiles: 1\n",
        "driver/nvidia/gpus/0000:01:00.0/information": "GPU UUID: GPU-1\n",
        "meminfo": "MemTotal: 1 kB\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


CUTS: dict[str, Callable[[str], bool]] = {
    "devices": lambda text: text == "Character devices:\n195 nvidia\n195 nvidiactl\n510 nvidia-uvm\n",
    "modules": lambda text: text.splitlines()[0].startswith("nvidia_uvm") and "ext4" not in text,
    "driver/nvidia/params": lambda text: text.endswith("ModifyDeviceFiles: 0\n"),
}


def test_copies_hold_driver_lines_and_forbid_device_changes(tmp_path: Path) -> None:
    files = driver_files(make_proc(tmp_path))
    assert files.keys() == CUTS.keys()
    assert {name: check(files[name]) for name, check in CUTS.items()} == dict.fromkeys(CUTS, True)
