"""Networks that are source code, in a worker: attacks by whoever wrote it, and the same bits where nobody attacks."""

import hashlib
import os
import re
import resource
import shutil
import socket
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import safetensors.torch

from lethe.competition.visibility import Visibility
from lethe.data.datasets.registry import datasets_below
from lethe.data.errors import InvalidSplit
from lethe.data.files import read_json, write_json
from lethe.errors import HostFault
from lethe.evaluation.image_evaluation import SplitEvaluator, load_original
from lethe.evaluation.manifest import MANIFEST, NETWORK_PATH, verify_split
from lethe.networks.builders import TRUST_SOURCE
from lethe.preparation.prepare import finish_split, make_split
from lethe.preparation.public_sample import retrain_on_sample
from lethe.preparation.step_cache import PreparationProgress
from sandbox.confined import Answer
from server.config import Settings
from tests.lethe.conftest import competition
from worker import source_networks
from worker.context import RunningContext
from worker.host.worker_info import worker_facts
from worker.split_storage.split_cache import SplitCache

pytestmark = pytest.mark.slow

PLAIN = """
from torch import nn

def build(input_shape, n_classes):
    n = input_shape[0] * input_shape[1] * input_shape[2]
    return nn.Sequential(nn.Flatten(), nn.Linear(n, 16), nn.ReLU(), nn.Linear(16, n_classes))
"""
LOOKS_AROUND = """
import os, socket
found = [path for path in CANARIES if os.path.exists(path)]
found += [name for name in os.environ if name.startswith("LETHE_") and name != "LETHE_TRUST_NETWORK_SOURCE"]
found += [line for line in open("/proc/self/status") if line.startswith("Seccomp:") and "2" not in line]
found += [] if os.getpid() == 1 else ["processes of the host"]
try:
    socket.create_connection(("127.0.0.1", PORT), timeout=1)
    found.append("the network")
except OSError:
    pass
for path in ("/opt/lethe/lethe/x", "/opt/site/x", "/x"):
    try:
        open(path, "w")
        found.append(path)
    except OSError:
        pass
raise RuntimeError(f"found {found}")
"""
FORGES_THE_ANSWER = """
import json, os, struct
header = json.dumps({"manifest": MANIFEST, "sizes": []}).encode()
for fd in range(3, 20):
    try:
        os.write(fd, struct.pack(">I", len(header)) + header)
    except OSError:
        pass
while True:
    pass
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home")


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A split that a confined process prepared."""
    folder = tmp_path_factory.mktemp("confined")
    prepare(Settings(home=folder / "home"), PLAIN, folder / "split")
    return folder / "split"


def with_source(source: str) -> Any:
    return competition(n_models=4, network={"name": "module", "options": {"source": source}})


def prepare(settings: Settings, source: str, out: Path, *, progress: Any = lambda _: None) -> None:
    with datasets_below([]):
        manifest = source_networks.make_split(settings, with_source(source), Visibility.PUBLIC, out, progress=progress)
    finish_split(manifest, out)


def context_in(settings: Settings) -> RunningContext:
    unused: Any = None
    cache = SplitCache(settings.scratch / "splits", cap_bytes=1)
    return RunningContext(settings=settings, facts=worker_facts(settings), leases=unused, artefacts=unused, cache=cache)


def test_confined_split_is_whole_and_gives_the_same_bits(split, settings, monkeypatch):
    assert verify_split(split) == []
    assert {path.lstat().st_uid for path in (split, *split.rglob("*"))} == {os.geteuid()}
    weights = safetensors.torch.save(load_original(split))
    confined = source_networks.ConfinedEvaluator(settings, split)
    try:
        found = confined.evaluate(weights)
    finally:
        confined.close()
    models = source_networks.retrain_on_sample(settings, split, with_source(PLAIN))
    monkeypatch.setenv(TRUST_SOURCE, "1")
    plain = SplitEvaluator.load(split).evaluate(weights)
    assert np.array_equal(found.confidences, plain.confidences)
    assert (found.retain_accuracy, found.test_accuracy) == (plain.retain_accuracy, plain.test_accuracy)
    assert np.array_equal(found.class_accuracy, plain.class_accuracy, equal_nan=True)
    own = retrain_on_sample(split / "sample", with_source(PLAIN))
    assert np.array_equal(models.outputs.confidences, own.outputs.confidences)
    assert models.finetuned is not None
    assert own.finetuned is not None
    assert np.array_equal(models.finetuned.confidences, own.finetuned.confidences)
    assert not np.array_equal(own.finetuned.confidences, own.outputs.confidences)


def test_source_in_network_json_never_runs_in_the_worker(split, settings, tmp_path, monkeypatch):
    """As an imported archive brings it: with every hash as it should be."""
    monkeypatch.setenv(TRUST_SOURCE, "1")  # somebody started the worker so
    canary = tmp_path / "ran-in-the-worker"
    network = read_json(split / NETWORK_PATH)
    source = f"import os\nprint(os.getpid())\ntry: open({str(canary)!r}, 'w')\nexcept OSError: pass\n" + PLAIN
    copy = tmp_path / "split"
    copy_split(split, copy, network | {"options": {"source": source}})
    context = context_in(settings)
    try:
        evaluator = context.evaluator(copy, "its manifest")
        outputs = evaluator.evaluate(safetensors.torch.save(load_original(copy)))
        assert outputs.confidences.shape == (len(outputs.confidences),)
    finally:
        context.close()
    assert not canary.exists()
    with pytest.raises(ValueError, match="would run here with your rights"):
        SplitEvaluator.load(copy)


def copy_split(split: Path, target: Path, network: dict[str, Any]) -> None:
    """Copy a split with another network.json, whose hash its manifest names."""
    shutil.copytree(split, target)
    write_json(target / NETWORK_PATH, network)
    manifest, data = read_json(target / MANIFEST), (target / NETWORK_PATH).read_bytes()
    record = {"sha256": hashlib.sha256(data).hexdigest()}
    manifest["files"][NETWORK_PATH] |= record | {
        name: len(data) for name in ("bytes", "size") if name in manifest["files"][NETWORK_PATH]
    }
    write_json(target / MANIFEST, manifest)


def test_preparation_shows_source_nothing_of_the_host(settings, tmp_path, monkeypatch):
    monkeypatch.setenv("LETHE_DATABASE_URL", "postgresql://secret")
    (tmp_path / "secret").write_text("of another competition")
    with socket.create_server(("127.0.0.1", 0)) as server:
        names = {
            "CANARIES": repr(["/etc/passwd", str(tmp_path), str(Path(__file__)), "/opt/lethe/worker"]),
            "PORT": str(server.getsockname()[1]),
        }
        source = LOOKS_AROUND
        for name, value in names.items():
            source = source.replace(name, value)
        with pytest.raises(InvalidSplit, match=r"RuntimeError: found \[\]"):
            prepare(settings, source + PLAIN, tmp_path / "split")


def test_source_that_takes_memory_ends_itself_alone(settings: Settings, tmp_path: Path) -> None:
    grows = "import os\nheld = []\nwhile True: held.append(os.urandom(1 << 24))\n"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InvalidSplit, match=r"MemoryError|MiB of memory"):
        prepare(settings, grows + PLAIN, tmp_path / "split")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024, "KiB"


def test_source_that_does_not_end_is_ended_with_the_lease(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", network_hours=23.5)  # nobody else's process is started with

    class Lost(Exception):
        pass

    forks = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"
    told: list[PreparationProgress] = []

    def progress(made: PreparationProgress) -> None:
        told.append(made)
        if len(told) > 12:
            raise Lost

    began = time.monotonic()
    with pytest.raises(Lost):
        prepare(settings, forks + PLAIN, tmp_path / "split", progress=progress)
    assert time.monotonic() - began < 60
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if b'"cpu_s": 84601' in read_or_nothing(path)]
    assert left == []


def read_or_nothing(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


LEAVES_LINKS = """
import os
os.makedirs("/split/visible", exist_ok=True)
os.makedirs("/split/hidden", exist_ok=True)
os.symlink("/etc/passwd", "/split/visible/retain.safetensors")
os.symlink("/etc", "/split/hidden/original")
os.link("/split/work/maker.txt", "/split/linked")
raise RuntimeError("enough")
"""


def test_links_left_in_the_split_are_not_followed(settings: Settings, tmp_path: Path) -> None:
    out = tmp_path / "split"
    with pytest.raises(InvalidSplit, match="neither a file nor a folder"):
        prepare(settings, LEAVES_LINKS + PLAIN, out)
    kinds = {path for path in out.rglob("*") if path.is_symlink() or not (path.is_file() or path.is_dir())}
    assert kinds == set()
    assert all(path.lstat().st_nlink == 1 for path in out.rglob("*") if path.is_file())


def forged(split: Path, name: str) -> dict[str, Any]:
    """Return the manifest of a split with one file more."""
    manifest = read_json(split / MANIFEST)
    manifest["files"][name] = next(iter(manifest["files"].values()))
    return manifest


def test_forged_manifest_of_a_split_that_is_not_there_is_refused(split, settings, tmp_path):
    source = FORGES_THE_ANSWER.replace("MANIFEST", repr(read_json(split / MANIFEST)))
    with pytest.raises(InvalidSplit, match="which is not a file of it"):
        prepare(settings, source + PLAIN, tmp_path / "split")


@pytest.mark.parametrize("name", ["../../../etc/passwd", "/etc/passwd", "absent"])
def test_forged_manifest_names_no_file_of_the_host(name, split, settings, tmp_path, monkeypatch):
    """Without a process, whose answer is what it forged."""
    answer = Answer({"manifest": forged(split, name)}, ())
    process = SimpleNamespace(ask=lambda *_given, **_how: answer)
    monkeypatch.setattr(source_networks, "_started", lambda *_given, **_how: nullcontext(process))
    shutil.copytree(split, tmp_path / "split")
    with pytest.raises(InvalidSplit, match=re.escape(f"names {name!r}, which is not a file of it")):
        prepare(settings, PLAIN, tmp_path / "split")


def test_forged_answers_of_an_evaluation_are_the_hosts_to_refuse(split, settings, tmp_path):
    network = read_json(split / NETWORK_PATH)
    copy = tmp_path / "split"
    copy_split(split, copy, network | {"options": {"source": FORGES_THE_ANSWER.replace("MANIFEST", "[]") + PLAIN}})
    evaluator = source_networks.ConfinedEvaluator(settings, copy)
    with pytest.raises(HostFault, match="answered nothing"):
        evaluator.evaluate(safetensors.torch.save(load_original(copy)))
    evaluator.close()


def test_worker_refuses_a_large_network_before_it_takes_memory(settings: Settings, tmp_path: Path) -> None:
    """One of the library's own, whose size its text does not hide."""
    context_in(settings).close()
    peaks = []
    for width in (8_000, 20_000):  # the first also loads modules and data; the second's matrix would take 1.6 GB
        wide = competition(n_models=4, network={"name": "mlp", "options": {"hidden": [width, width]}})
        with pytest.raises(InvalidSplit, match=r"parameters .* allowed here are 50,331,648"):
            make_split(wide, Visibility.PUBLIC, tmp_path / "split")
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    assert peaks[1] - peaks[0] < 200 * 1024, "KiB"


def test_gpu_workers_leave_source_to_others(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home", worker_device="cuda")
    with pytest.raises(InvalidSplit, match="LETHE_WORKER_DEVICE=cpu only"):
        prepare(settings, PLAIN, tmp_path / "split")
