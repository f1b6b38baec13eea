"""Everything that a run can see, against an exact list: paths, descriptors, environment, mounts, identity."""

import json
from pathlib import Path
from typing import Any

import pytest

from sandbox.launcher import RunRequest, Sandbox

from .conftest import Submit, write_submission

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


def test_network_has_no_interface(submit: Submit) -> None:
    source = """
    import socket
    def unlearning(net, retain, forget, validation):
        try:
            print(socket.if_nameindex())
        except OSError as error:
            print(type(error).__name__)
    """
    assert submit(source, kind="sample").log.decode().strip() in {"[]", "OSError"}
