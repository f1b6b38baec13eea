"""The readers of hostile bytes, each with valid examples to start from and a check of everything that it promises.

A check returns for bytes that are read or refused, and raises for anything else: another exception, or more than was
allowed. Tests give it mutations from hypothesis; `benchmarks.sandbox.fuzz` changes valid files at random.
"""

import io
import json
import resource
import tempfile
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save

from lethe.errors import AppError, HostFault, InvalidSubmission
from lethe.runtime.error_classes import Blame
from lethe.runtime.weights_layout import BadLayout, read_layout
from lethe.submission.package import PackageLimits, load_package, read_zip
from sandbox.frame_reader import CheckpointReader, FrameReader, FrameState, NotebookRun, find_problem
from sandbox.guest.frame_format import CHECKPOINT_TAG, CHOICE_TAG, NUMBER, WEIGHTS_TAG, encode_fault
from sandbox.run_request import readable_log
from sandbox.verdict import Context, ExitFacts, judge
from server.api.accounts import Registration
from server.parsing.client import run, run_on_file
from server.parsing.process import WALL_S

OWN_S, OWN_MIB = 1.0, 64  # processor seconds and memory of the web process for one text that others read
WITHIN_S = 20.0  # processor seconds for one input; a busy machine's are longer too
WITHIN_MIB = 96
SMALL = PackageLimits(files=64, unpacked_bytes=1 << 20, ratio_from_bytes=1 << 16)
_STATE = {"1.weight": torch.arange(6.0).reshape(2, 3), "1.bias": torch.zeros(2), "n": torch.tensor(3)}
_FRAME = save(_STATE)
_LAYOUT = read_layout(_FRAME)
_CODE = "import torch\n!pip install x\ndef unlearning(net, retain, forget, val):\n    return net\n"


class Broken(AssertionError):
    """A reader kept something, but not what it promises."""


@dataclass(frozen=True)
class Target:
    """A reader under test: whole inputs to begin with, and what to do with any bytes."""

    seeds: tuple[bytes, ...]
    check: Callable[[bytes], None]


def examine(target: Target, data: bytes) -> None:
    """Check one input, and that it took little time and memory. Raises Broken, or whatever the reader raised."""
    tracemalloc.start()
    began = time.process_time()
    try:
        target.check(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    took_s = time.process_time() - began
    _require(took_s < WITHIN_S, f"{len(data)} bytes took {took_s:.1f} s")
    _require(peak < WITHIN_MIB << 20, f"{len(data)} bytes took {peak >> 20} MiB")


Edit = tuple[int, int, int, bytes]  # what, where and how far (of 2**16), and bytes to put in


def mutated(seed: bytes, edits: Sequence[Edit], other: bytes) -> bytes:
    """Return a seed changed step by step: cut, doubled, overwritten, or with a piece of another seed in it."""
    data = bytearray(seed)
    for kind, where, length, piece in edits:
        begin = where * len(data) >> 16
        end = min(len(data), begin + 1 + (length * length >> 24))  # mostly short
        match kind % 5:
            case 0:
                data[begin : begin + len(piece)] = piece
            case 1:
                del data[begin:end]
            case 2:
                data[begin:begin] = data[begin:end]
            case 3:
                data[begin:begin] = other[begin % max(1, len(other)) :][:length]
            case _:
                data[begin:begin] = piece
    return bytes(data)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise Broken(what)


def _elsewhere(task: str, **options: object) -> Callable[[bytes], None]:
    """Return a check that the text costs this process next to nothing, however long its reader works on it."""

    def check(data: bytes) -> None:
        before, began, computed = _resident_mib(), time.monotonic(), time.process_time()
        try:
            run(task, data, **options)
        except AppError as error:
            _require(not isinstance(error, HostFault), f"the host was blamed: {error}")
        _require(time.monotonic() - began < 2 * WALL_S, "the reader was not ended")
        _require(time.process_time() - computed < OWN_S, "the web process computed")
        _require(_resident_mib() - before < OWN_MIB, "the web process grew")

    return check


def _resident_mib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 20


def _json_body(data: bytes) -> None:
    """Read a body as FastAPI does: in the web process, so it has to be quick whatever it holds."""
    computed = time.process_time()
    with suppress(ValueError, RecursionError):
        Registration.model_validate(json.loads(data))
    _require(time.process_time() - computed < OWN_S, "the web process computed")


def _archive(data: bytes) -> None:
    try:
        files = read_zip(data, limits=SMALL)
    except InvalidSubmission:
        return
    _require(sum(map(len, files.values())) <= SMALL.unpacked_bytes, "more than the cap was unpacked")
    for name in files:
        parts = name.split("/")
        _require(not name.startswith("/") and not {"", ".", ".."} & set(parts), f"the name {name!r} was let through")


def _dataset(data: bytes) -> None:
    """Unpack a dataset as a worker does: nothing lies outside, nothing is a link, and the sum keeps its limit."""
    before, computed = _resident_mib(), time.process_time()
    with tempfile.TemporaryDirectory(prefix="lethe-fuzz-") as place, tempfile.TemporaryFile() as file:
        folder = Path(place, "a", "files")
        folder.mkdir(parents=True)
        file.write(data)
        file.flush()
        limits = {"files": SMALL.files, "unpacked_bytes": SMALL.unpacked_bytes}
        try:
            run_on_file("unpack_dataset", file, folder=str(folder), limits=limits)
        except AppError as error:
            _require(not isinstance(error, HostFault), f"the host was blamed: {error}")
        written = [path for path in Path(place).rglob("*") if path != folder and path != folder.parent]
        _require(all(path.is_relative_to(folder) for path in written), "a file lies outside")
        _require(not any(path.is_symlink() for path in written), "a link was made")
        total = sum(path.stat().st_size for path in written if path.is_file())
        _require(total <= SMALL.unpacked_bytes, "more than the cap was unpacked")
    _require(time.process_time() - computed < OWN_S, "this process computed")
    _require(_resident_mib() - before < OWN_MIB, "this process grew")


def _package(data: bytes) -> None:
    for name in ("a.zip", "a.ipynb", "a.py"):
        try:
            package = load_package(data, name, limits=SMALL, modes=("function", "notebook"))
        except InvalidSubmission:
            continue
        entry = "cell-01.py" if package.entry_point.program else package.entry_point.file
        _require(entry in package.files, "the entry point is not in the package")


def _layout(data: bytes) -> None:
    try:
        layout = read_layout(data)
    except BadLayout:
        return
    _require(layout.header == data[: len(layout.header)], "the header is not the file's")


def _feed(reader: FrameReader, data: bytes) -> None:
    step = 1 + (data[0] if data else 0)
    for begin in range(0, len(data), step):
        reader.feed(data[begin : begin + step])
    if reader.state is FrameState.FAULT:
        verdict = judge(ExitFacts(frame=FrameState.FAULT, claim=reader.fault()), _CONTEXT)
        _require(verdict.fault is Blame.PARTICIPANT and len(verdict.message) < 1000, "a claim said too much")


def _frame(data: bytes) -> None:
    reader = FrameReader(_LAYOUT)
    _feed(reader, data)
    if reader.state is FrameState.WEIGHTS:
        weights = reader.weights()
        _require(len(weights) == _LAYOUT.frame_bytes, "a frame of another length")
        find_problem(weights, _LAYOUT, max_abs_weight=1e9)


def _checkpoints(data: bytes) -> None:
    taken: list[int] = []
    notebook = NotebookRun(checkpoints=2, on_checkpoint=lambda slot, _weights: taken.append(slot))
    reader = CheckpointReader(_LAYOUT, notebook, max_abs_weight=1e9)
    _feed(reader, data)
    if reader.state is FrameState.WEIGHTS:
        _require(len(set(reader.chosen)) == notebook.checkpoints, "another number of models counts")
        _require(reader.problem is not None or set(reader.chosen) <= set(taken), "a model counts that never came")


def _log(data: bytes) -> None:
    text = readable_log(data, max_chars=500)
    _require(len(text) <= 500, "a log longer than its cap")
    _require(not any(ord(each) < 32 and each not in "\n\t" for each in text), "a control character was let through")


def _zip(files: Mapping[str, bytes], *, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return buffer.getvalue()


def _notebook() -> bytes:
    cells = [{"cell_type": "code", "source": _CODE}, {"cell_type": "code", "source": ["%%time\n", "x = 1\n"]}]
    return json.dumps({"cells": cells, "metadata": {"language_info": {"name": "python"}}, "nbformat": 4}).encode()


_CONTEXT = Context(
    limits=dict.fromkeys(
        (
            *("wall_time_s", "cpu_allowance_s", "idle_time_s", "memory_mib", "processes", "log_kib", "scratch_mib"),
            *("scratch_inodes", "file_size_mib", "max_abs_weight"),
        ),
        1,
    ),
    files={"submission.py": 9},
    tensors=frozenset(_STATE),
    entry_file="submission.py",
)
_ZIPS = (
    _zip({"submission.py": _CODE.encode(), "more/data.bin": bytes(300), "submission.toml": b'samples = "dict"\n'}),
    _zip({"a/submission.py": b"def unlearning(a, b, c, d): pass\n", "a/b/": b""}, method=zipfile.ZIP_STORED),
)
_CHECKPOINTS = b"".join(CHECKPOINT_TAG + NUMBER.pack(slot) + _FRAME for slot in (0, 7))
_FAULTS = encode_fault({"class": "exception", "mro": ["ValueError"], "file": "submission.py", "line": 2})
_COMPETITION = b"""slug = "digits"
title = "Digits"
opens_at = 2030-01-01T00:00:00Z
closes_at = 2030-02-01T00:00:00Z
dataset.name = "digits"
network = {name = "mlp", options = {hidden = [1, 2]}}
[training]
epochs = 1
learning_rate = 0.1
"""
_MARKDOWN = (b"# A *title*\n\n- [a](b)\n  - `c` ![d][e]\n\n| a | b |\n|---|---|\n| **1** | <x> |\n\n[e]: /f\n> q\n",)
TARGETS: Mapping[str, Target] = {
    "upload-elsewhere": Target(
        (*_ZIPS, _CODE.encode()), _elsewhere("check_package", filename="a.zip", modes=["function"])
    ),
    "code-elsewhere": Target((_CODE.encode(),), _elsewhere("check_package", filename="a.py", modes=["function"])),
    "competition-file": Target((_COMPETITION,), _elsewhere("read_competition", source="file")),
    "markdown": Target(_MARKDOWN, _elsewhere("render_markdown")),
    "json-body": Target((b'{"name": "ada", "password": "correct horse", "email": "a@b.org"}',), _json_body),
    "archive": Target(_ZIPS, _archive),
    "dataset": Target((*_ZIPS, _zip({"images.csv": b"path,label\na.png,0\n", "a.png": bytes(999)})), _dataset),
    "package": Target((*_ZIPS, _notebook(), _CODE.encode()), _package),
    "layout": Target((_FRAME,), _layout),
    "frame": Target((WEIGHTS_TAG + _FRAME, _FAULTS), _frame),
    "checkpoints": Target(
        (_CHECKPOINTS + CHOICE_TAG + NUMBER.pack(2) + NUMBER.pack(0) + NUMBER.pack(7), _CHECKPOINTS, _FAULTS),
        _checkpoints,
    ),
    "log": Target((b"epoch 1\r\x1b[31mred\x1b[0m \xe2\x80\xae\n", b"\xff" * 600), _log),
}
