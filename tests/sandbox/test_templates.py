"""Sandboxes that are forked from one template: nothing of one reaches the next, and none reaches the template."""

import json
import os
import platform
import signal
import threading
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from lethe.runtime.error_classes import Blame
from sandbox.backends import bubblewrap, detached_mounts, templates
from sandbox.host_delay import children
from sandbox.launcher import Launcher, RunRequest, RunResult, Sandbox, SandboxSpec

from .conftest import GOOD, TEST_POLICY, is_living, write_split, write_submission

pytestmark = pytest.mark.slow

# Looks through all of its memory that can be written to for words that it holds in pieces only, so as not to find them
# in its own code.
SEARCHES = """
import json, os

def found(words):
    hits = dict.fromkeys(words, 0)
    with open("/proc/self/maps") as file:
        areas = [line.split() for line in file]
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        for span, rights, *_rest in areas:
            begin, end = (int(word, 16) for word in span.split("-"))
            if "w" not in rights:
                continue
            for at in range(begin, end, 1 << 20):
                memory.seek(at)
                try:
                    held = memory.read(min(end - at, (1 << 20) + 64))
                except OSError:
                    continue
                for name, (first, second) in words.items():
                    at_first = held.find(first)
                    while at_first >= 0:
                        hits[name] += held.startswith(second, at_first + len(first))
                        at_first = held.find(first, at_first + 1)
    return hits

def unlearning(net, retain, forget, validation):
    with open("/proc/self/maps") as file:
        shared = [line for line in file if line.split()[1].endswith("s") and "w" in line.split()[1]]
    kept = "".join(("written-by-", "the-RUN-run")).encode() * 1000
    print(json.dumps({
        "held": found(WORDS), "shared": shared, "parent": os.getppid(), "session": os.getsid(0),
        "processes": [name for name in os.listdir("/proc") if name.isdigit()],
        "descriptors": sorted(os.listdir("/proc/self/fd"), key=int),
        "reached": [pid for pid in range(2, 4096) if reaches(pid)],
        "uid": open("/proc/self/uid_map").read().split(),
        "files": {path: sorted(os.listdir(path)) for path in ("/data", "/scratch", "/submission")},
    }))

def reaches(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
"""
WORDS = {
    "first split": (b"secret-of-", b"the-first-split!"),
    "second split": (b"secret-of-", b"the-second-split"),
    "first run": (b"written-by-", b"the-first-run"),
    "environment of the launcher": (b"secret-of-", b"the-launcher"),
}


# Tells which pages that it shares with the template the kernel marks as used, and how many are inactive; only the first
# run uses them, each huge page also as small ones, and then frees and locks them, which would make them inactive.
MARKS = """
import ctypes, json, os
libc = ctypes.CDLL(None)
HUGE = 2 << 20

def inactive():
    with open("/proc/self/numa_maps") as areas:
        counts = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in areas]
    return sum(int(area["anon"]) - int(area.get("active", area["anon"])) for area in counts if "anon" in area)

def unlearning(net, retain, forget, validation):
    pages, areas, n_inactive = [], [], inactive()
    with open("/proc/self/maps") as maps, open("/proc/self/pagemap", "rb") as pagemap:
        for line in maps:
            words = line.split()
            begin, end = (int(word, 16) for word in words[0].split("-"))
            if words[1] == "rw-p" and words[5:] in ([], ["[heap]"]) and end - begin >= 1 << 18:
                areas.append((begin, end))
            if len(words) == 5 and words[1] == "rw-p" and end - begin >= 1 << 18:
                pagemap.seek(begin // 4096 * 8)
                held = pagemap.read((end - begin) // 4096 * 8)
                states = [int.from_bytes(held[at:at + 8], "little") for at in range(0, len(held), 8)]
                pages += [begin + 4096 * at for at, state in enumerate(states) if state >> 63 and not state >> 56 & 1]
    pages = pages[::7][:64]
    if USES:
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            for page in pages * 3:
                memory.seek(page)
                memory.read(8)
        for begin, end in areas:
            for address in range(begin // HUGE * HUGE + HUGE, end - HUGE, HUGE):
                libc.madvise(ctypes.c_void_p(address + 4096), 4096, 16)
            for _ in range(3):
                libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), 22)  # MADV_POPULATE_READ
    for page in pages:
        libc.madvise(ctypes.c_void_p(page), 4096, 16)  # MADV_DONTDUMP: an area of its own, with a line of its own
    used, begin = 0, 0
    with open("/proc/self/smaps") as smaps:
        for line in smaps:
            words = line.split()
            if words[0] == "Referenced:":
                used += begin in pages and int(words[1]) > 0
            elif "-" in words[0]:
                begin = int(words[0].split("-")[0], 16)
    if USES:
        child = os.fork()
        if child == 0:
            for begin, end in areas:
                libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), 8)  # MADV_FREE
                for address in range(begin, end, 1 << 16):  # as much as an ordinary user may lock
                    span = ctypes.c_void_p(address), ctypes.c_size_t(min(1 << 16, end - address))
                    libc.mlock2(*span, 1)  # MLOCK_ONFAULT: none is copied
                    libc.munlock(*span)
            os._exit(0)
        os.waitpid(child, 0)
    print(json.dumps({"pages": len(pages), "used": used, "inactive": n_inactive}))
"""


@dataclass(frozen=True)
class TwoSandboxes:
    """What was seen of two sandboxes on two splits, one after the other."""

    first: dict[str, object]
    second: dict[str, object]
    template_pids: tuple[int, int]
    uids: tuple[int, int]
    template_files: tuple[str, ...]  # of the template between the two: what its descriptors are
    template_folders: tuple[list[Path], list[Path]]  # its /data and /stage
    template_environment: list[bytes]
    template_status: dict[str, str]
    template_huge_kib: int
    zygote_huge_kib: int
    template_shared: list[str]  # its writable shared mappings
    children_between: list[int]


def split_with(folder: Path, words: bytes) -> Path:
    """Write a split whose images all hold these 26 words' bytes."""
    write_split(folder)
    for name in ("retain", "forget", "validation"):
        tensors = load_file(folder / f"{name}.safetensors")
        row = torch.frombuffer(bytearray((words * 3)[:64]), dtype=torch.uint8)
        tensors["images"] = row.reshape(1, 1, 8, 8).expand(tensors["images"].shape).contiguous()
        save_file(tensors, folder / f"{name}.safetensors")
    return folder


def huge_kib(proc: Path) -> int:
    (line,) = [line for line in (proc / "smaps_rollup").read_text().splitlines() if line.startswith("AnonHugePages:")]
    return int(line.split()[1])


def template_of(sandbox: Sandbox) -> int:
    """Return the id of the process of bubblewrap's, with which the template ends."""
    template = sandbox._link._template  # type: ignore[union-attr]
    return int(template._process.pid)


def start(split: Path, stage: Path, **wanted: object) -> Sandbox:
    policy = replace(TEST_POLICY, **{"memory_mib": 512, "wall_time_s": 120, **wanted})  # type: ignore[arg-type]
    return Launcher(SandboxSpec(data_dir=split, stage_dir=stage, policy=policy)).start()


def seen_by(sandbox: Sandbox, code: Path) -> dict[str, object]:
    result = sandbox.run(RunRequest(code_dir=code, kind="sample"))
    assert result.weights is not None, (result.verdict, result.log)
    found: dict[str, object] = json.loads(result.log)
    return found


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> TwoSandboxes:
    folder = tmp_path_factory.mktemp("templates")
    os.environ["LETHE_CANARY"] = "secret-of-the-launcher"
    splits = [split_with(folder / name, b"".join(WORDS[f"{name} split"])) for name in ("first", "second")]
    stages = [folder / "stage-1", folder / "stage-2"]
    source = SEARCHES.replace("WORDS", repr(WORDS))
    for run, stage in zip(("first", "second"), stages, strict=True):
        stage.mkdir()
        write_submission(stage, "code", source.replace("RUN", run))
    with start(splits[0], stages[0]) as sandbox:
        first, pid, uid = seen_by(sandbox, stages[0] / "code"), template_of(sandbox), sandbox.achieved.kernel_uid
        zygote_kib = huge_kib(Path(f"/proc/{sandbox._link._process.pid}"))  # type: ignore[union-attr]
    (template,) = children(pid)
    proc = Path(f"/proc/{template}")
    between = {
        "template_files": tuple(sorted(str(path.readlink()).split(":")[0] for path in (proc / "fd").iterdir())),
        "template_folders": tuple(list((proc / "root" / name).iterdir()) for name in ("data", "stage")),
        "template_environment": (proc / "environ").read_bytes().split(b"\0"),
        "template_status": dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines()),
        "template_huge_kib": huge_kib(proc),
        "zygote_huge_kib": zygote_kib,
        "template_shared": [line for line in (proc / "maps").read_text().splitlines() if line.split()[1][1::2] == "ws"],
        "children_between": [child for child in children(template) if is_living(child)],
    }
    with start(splits[1], stages[1]) as sandbox:
        second, pid_2, uid_2 = seen_by(sandbox, stages[1] / "code"), template_of(sandbox), sandbox.achieved.kernel_uid
    del os.environ["LETHE_CANARY"]
    return TwoSandboxes(first, second, (pid, pid_2), (uid, uid_2), **between)  # type: ignore[arg-type]


def test_second_sandbox_is_forked_of_the_firsts_template(two: TwoSandboxes) -> None:
    assert two.template_pids[0] == two.template_pids[1]
    assert two.uids[0] == two.uids[1] != 0


def test_memory_of_a_run_holds_its_own_split_and_nothing_of_the_sandbox_before(two: TwoSandboxes) -> None:
    first, second = two.first["held"], two.second["held"]
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert first["first split"] > 0, "the search finds what is there"
    assert first["first run"] > 0, "in the run's own heap too"
    assert second["second split"] > 0
    assert (first["second split"], second["first split"], second["first run"]) == (0, 0, 0)
    assert first["environment of the launcher"] == second["environment of the launcher"] == 0


def test_pages_that_a_run_has_used_say_nothing_to_later_runs(tmp_path: Path) -> None:
    found = []
    for number, sandbox_uses in enumerate(((False, True, False), (False,))):
        stage = tmp_path / f"stage-{number}"
        stage.mkdir()
        code = [write_submission(stage, f"code{uses}", MARKS.replace("USES", str(uses))) for uses in sandbox_uses]
        with start(write_split(tmp_path / f"split-{number}"), stage) as sandbox:
            found += [seen_by(sandbox, each) for each in code]
    before, using, *after = found
    assert (using["pages"], using["used"]) == (64, 64), "the marks are seen where they were just made"
    for seen in after:
        # What a run uses by itself is no message, and differs by some pages; a message shows all 64, or a huge page.
        assert seen["used"] - before["used"] < (64 - before["used"]) / 2, found
        assert abs(seen["inactive"] - before["inactive"]) < 256, found


def test_run_sees_its_own_folders_and_reaches_no_process_beside(two: TwoSandboxes) -> None:
    for number, seen in enumerate((two.first, two.second)):
        assert seen["processes"] == ["1"], number
        assert (seen["parent"], seen["session"], seen["reached"]) == (0, 1, [])
        assert seen["shared"] == []
        assert seen["descriptors"] == ["0", "1", "2", "3", "4"]  # the last is that of the listing
        assert seen["uid"] == ["1000", "1000", "1"]
    assert two.first["files"] == two.second["files"]


def test_template_holds_nothing_of_the_launcher_and_nothing_of_a_sandbox(two: TwoSandboxes) -> None:
    assert two.template_folders == ([], [])
    assert len(two.template_files) == 4, two.template_files  # nothing, twice what it prints to, and the socket
    assert two.template_files.count("socket") == 1
    assert two.template_files.count("/dev/null") == 1
    assert two.template_shared == []
    assert two.children_between == []
    assert not [entry for entry in two.template_environment if b"CANARY" in entry]
    assert {entry.split(b"=")[0] for entry in two.template_environment} >= {b"HOME", b"PYTHONHASHSEED"}


@pytest.mark.skipif(
    tuple(map(int, platform.release().split(".")[:2])) < (6, 1), reason="the kernel cannot put memory on huge pages"
)
def test_memory_that_is_forked_lies_on_huge_pages(two: TwoSandboxes) -> None:
    assert two.template_huge_kib > 64 << 10
    assert two.zygote_huge_kib > 0.8 * two.template_huge_kib


def test_template_has_no_privilege(two: TwoSandboxes) -> None:
    status = two.template_status
    assert "0" not in status["Uid"].split()
    assert [int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")] == [0] * 4
    assert status["NoNewPrivs"] == "1"


def test_two_living_sandboxes_have_two_templates_and_two_users(split: Path, stage: Path) -> None:
    with start(split, stage) as one, start(split, stage) as other:
        assert template_of(one) != template_of(other)
        if os.geteuid() == 0:
            assert one.achieved.kernel_uid != other.achieved.kernel_uid


def test_other_limits_of_a_run_take_the_same_template_and_another_environment_takes_a_new_one(split, stage):
    with start(split, stage) as sandbox:
        pid = template_of(sandbox)
    with start(split, stage, wall_time_s=7, processes=9) as sandbox:
        assert template_of(sandbox) == pid
    with start(split, stage, threads=2) as sandbox:
        assert template_of(sandbox) != pid
    assert not is_living(pid), "the template that did not fit has ended"


def test_template_of_a_zygote_that_failed_is_not_used_again(split: Path, stage: Path) -> None:
    code = write_submission(stage, "after-a-failure", GOOD)
    with start(split, stage) as sandbox:
        pid = template_of(sandbox)
        sandbox._link._process.send(signal.SIGKILL)  # type: ignore[union-attr]
        results: list[RunResult] = [sandbox.run(RunRequest(code_dir=code)) for _ in range(2)]
        assert results[-1].weights is not None
        assert results[0].weights is not None or results[0].verdict.fault is Blame.HOST
        assert template_of(sandbox) != pid
    assert not is_living(pid)


def test_template_ends_with_its_thread_and_serves_no_other(split: Path, stage: Path) -> None:
    pids: list[int] = []

    def use() -> None:
        with start(split, stage) as sandbox:
            pids.append(template_of(sandbox))

    for _ in range(2):
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
    with start(split, stage) as sandbox:
        pids.append(template_of(sandbox))
    assert len(set(pids)) == 3
    assert not [pid for pid in pids[:2] if is_living(pid)]


def test_sandbox_that_another_thread_closes_takes_its_template_along(split: Path, stage: Path) -> None:
    sandbox = start(split, stage)
    pid = template_of(sandbox)
    thread = threading.Thread(target=sandbox.close)
    thread.start()
    thread.join()
    assert not is_living(pid)


def test_forked_launcher_leaves_its_parents_template_alone(split: Path, stage: Path) -> None:
    with start(split, stage) as sandbox:
        pid = template_of(sandbox)
    child = os.fork()
    if child == 0:
        waiting = templates._waiting.template
        took = templates.take(waiting.key, slot_number=None) if waiting else None
        os._exit(0 if waiting is not None and took is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with start(split, stage) as sandbox:
        assert template_of(sandbox) == pid


def test_where_no_mount_can_be_handed_over_bubblewrap_shows_the_folders(split, stage, monkeypatch):
    monkeypatch.setattr(bubblewrap, "detach", lambda _stack, _folders: ())
    code = write_submission(stage, "without-mounts", GOOD)
    with start(split, stage) as sandbox:
        assert sandbox.run(RunRequest(code_dir=code)).weights is not None
        assert template_of(sandbox) not in _other_templates(split, stage)


def _other_templates(split: Path, stage: Path) -> list[int]:
    other = write_split(split.parent / "another")
    with start(other, stage) as sandbox:
        return [template_of(sandbox)]


@pytest.mark.parametrize("way", ["of the launcher's own", "by the program"])
def test_mount_that_is_handed_over_is_read_only(tmp_path: Path, way: str) -> None:
    (tmp_path / "file").write_text("shown")
    with ExitStack() as stack:
        if way == "by the program":
            (fd,) = detached_mounts._from_program([tmp_path], stack)
        else:
            (fd,) = detached_mounts.detach(stack, [tmp_path])
        flags = os.fstatvfs(fd).f_flag
        assert flags & os.ST_RDONLY
        assert flags & os.ST_NOSUID
        assert [path.name for path in Path(f"/proc/self/fd/{fd}").iterdir()] == ["file"]
        with pytest.raises(OSError, match="Read-only"):
            Path(f"/proc/self/fd/{fd}/other").touch()
    with ExitStack() as stack:
        before = len(list(Path("/proc/self/fd").iterdir()))
        assert detached_mounts.detach(stack, [tmp_path, tmp_path / "missing"]) == ()
        assert len(list(Path("/proc/self/fd").iterdir())) == before
