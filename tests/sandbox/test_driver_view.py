"""With a device shown, a run sees the few files that drivers read, may do what their start needs, and no more."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.guest.driver_view import driver_files
from sandbox.launcher import Launcher, RunRequest, SandboxSpec
from sandbox.policy import DRIVER_FOLDER, Mount
from worker.host.gpu_sandbox import system_files

from .conftest import TEST_POLICY, write_submission

LOOK = """
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
def seen(split: Path, stage: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Look around in a run that is shown a device, though none of a GPU."""
    libraries = tmp_path_factory.mktemp("driver")
    mounts = (*system_files(), Mount(str(libraries), DRIVER_FOLDER))
    policy = replace(TEST_POLICY, devices=("/dev/null",), mounts=mounts)
    code = write_submission(stage, "looks-at-the-driver-view", LOOK)
    with Launcher(SandboxSpec(data_dir=split, stage_dir=stage, policy=policy)).start() as sandbox:
        result = sandbox.run(RunRequest(code_dir=code))
    assert result.weights is not None, (result.verdict, result.log)
    found: dict[str, Any] = json.loads(result.log)
    return found


def test_driver_files_are_copies_and_all_else_is_empty(seen: dict[str, Any]) -> None:
    texts = {path.removeprefix("/proc/"): text for path, text in seen["proc"].items() if text}
    expected = {name: text for name, text in driver_files().items() if text}
    assert texts.keys() == expected.keys()
    assert texts["sys/vm/mmap_min_addr"] == expected["sys/vm/mmap_min_addr"]
    assert texts["devices"] == expected["devices"]


def test_it_sees_the_files_of_sys_that_were_named_and_no_other(seen: dict[str, Any]) -> None:
    assert seen["sys"] == sorted(mount.target for mount in system_files())


def test_it_can_write_to_none_of_them_nor_uncover_the_rest(seen: dict[str, Any]) -> None:
    assert seen["written"] == ["Read-only file system", "Read-only file system"]
    assert seen["umount"] == -1
    assert seen["stage"] in ("Permission denied", [])


def test_it_may_do_what_the_drivers_start_needs(seen: dict[str, Any]) -> None:
    assert seen["thread"] == "cuda"
    assert seen["memory file"]
    assert DRIVER_FOLDER in seen["loader"].split(":")


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
