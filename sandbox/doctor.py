"""Tries the boundary on this host as a competition would: a real zygote, a real run, on made-up data."""

import json
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from lethe.runtime.weights_layout import DTYPE_BYTES, HEADER_LENGTH, ORIGINAL_MODEL
from sandbox.controls import BASELINE_CONTROLS, STRICT_CONTROLS, Control, missing_controls
from sandbox.errors import BackendUnavailable, ZygoteFailed
from sandbox.guest.isolate import core_limit
from sandbox.launcher import Launcher, RunRequest, SandboxSpec
from sandbox.policy import RunPolicy

_NETWORK = {
    "name": "mlp",
    "options": {"hidden": [4]},
    "input_shape": [1, 2, 2],
    "n_classes": 2,
    "input_scale": 1.0,
    "input_shift": 0.0,
}
_TRIAL = "def unlearning(net, retain, forget, validation):\n    next(iter(retain))\n"
_HINTS = (
    (
        "namespace",
        "This machine does not let ordinary users make user namespaces. Debian and Ubuntu: see the sysctls "
        "kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns, or give bwrap an "
        "AppArmor profile. Docker: use a seccomp profile that allows clone, unshare, mount, umount2 and pivot_root.",
    ),
    ("mount proc", "A masked /proc cannot be mounted again. Docker: security_opt systempaths=unconfined."),
    ("pivot_root", "Docker's seccomp profile blocks pivot_root: use one that allows it."),
)

_CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")
_KEEP_DUMPS_OUT = (
    "A run that crashes would have its memory, and the data in it, handed to the host's own {taker}: set the sysctl "
    "kernel.core_pattern to a file's name (such as core){or_else}."
)


@dataclass(frozen=True)
class Diagnosis:
    """What the trial showed. `problems` is empty where a competition could be hosted.

    weaknesses: what is missing of the strict controls, whether or not they are required.
    """

    problems: tuple[str, ...]
    controls: dict[str, Any]
    weaknesses: tuple[str, ...] = ()
    start_time_s: float = 0.0
    run_time_s: float = 0.0


def examine(
    *,
    backend: str = "bubblewrap",
    policy: RunPolicy | None = None,
    required: Iterable[Control] = BASELINE_CONTROLS,
    library_sets: Path | None = None,
) -> Diagnosis:
    """Start a sandbox, run a trial submission, and say what is missing and how to get it."""
    with tempfile.TemporaryDirectory(prefix="lethe-doctor-") as folder:
        data_dir, stage_dir = Path(folder) / "visible", Path(folder) / "stage"
        _write_split(data_dir)
        code_dir = stage_dir / "trial"
        code_dir.mkdir(parents=True)
        (code_dir / "submission.py").write_text(_TRIAL, encoding="utf-8")
        spec = SandboxSpec(
            data_dir=data_dir,
            stage_dir=stage_dir,
            policy=policy or RunPolicy(),
            backend=backend,
            library_sets=library_sets,
            required_controls=frozenset(),
        )
        try:
            return _trial(spec, code_dir, required)
        except (BackendUnavailable, ZygoteFailed, OSError) as error:
            return Diagnosis(problems=(_explained(str(error)),), controls={})


def core_dump_problem(pattern: str | None = None) -> str:
    """Return how to keep a run's core dumps from leaving it, "" where they cannot.

    pattern: the host's kernel.core_pattern, read from /proc if it is not given. No limit of a run's keeps the kernel
    from a socket of the host's (@); the one that keeps it from a program (|) is not the 0 that a host may impose.
    Looked at is this process's own limit; a service may have another. Raises OSError where /proc cannot be read.
    """
    kind = (_CORE_PATTERN.read_text(encoding="utf-8") if pattern is None else pattern)[:1]
    if kind == "@":
        return _KEEP_DUMPS_OUT.format(taker="socket", or_else="")
    if kind == "|" and core_limit() == 0:
        or_else = (
            ", or give the worker's service a hard limit on core dumps above 0 (systemd: LimitCORE=0:infinity; here, "
            "in this shell, it is 0)"
        )
        return _KEEP_DUMPS_OUT.format(taker="program", or_else=or_else)
    return ""


def _trial(spec: SandboxSpec, code_dir: Path, required: Iterable[Control]) -> Diagnosis:
    began = time.monotonic()
    with Launcher(spec).start() as sandbox:
        started = time.monotonic()
        result = sandbox.run(RunRequest(code_dir=code_dir, kind="sample"))
        problems = missing_controls(sandbox.achieved, required)
        if result.weights is None:
            said = result.facts.host_error or result.verdict.message
            problems.append(_explained(f"A trial run failed: {said}"))
        return Diagnosis(
            problems=tuple(problems),
            controls=sandbox.controls,
            weaknesses=tuple(missing_controls(sandbox.achieved, STRICT_CONTROLS)),
            start_time_s=started - began,
            run_time_s=time.monotonic() - started,
        )


def _explained(message: str) -> str:
    hints = [hint for phrase, hint in _HINTS if phrase in message.lower()]
    return " ".join([message, *hints[:1]])


def _write_split(folder: Path) -> None:
    folder.mkdir()
    (folder / "network.json").write_text(json.dumps(_NETWORK), encoding="utf-8")
    sets = {"images": ("U8", [2, 1, 2, 2]), "labels": ("I64", [2]), "ids": ("I64", [2]), "persons": ("I64", [2])}
    for name in ("retain", "forget", "validation"):
        _write_zeros(folder / f"{name}.safetensors", sets)
    weights = {"1.weight": ("F32", [4, 4]), "1.bias": ("F32", [4]), "3.weight": ("F32", [2, 4]), "3.bias": ("F32", [2])}
    _write_zeros(folder / ORIGINAL_MODEL, weights)


def _write_zeros(path: Path, tensors: dict[str, tuple[str, list[int]]]) -> None:
    """Write a safetensors file of zeros, without a package that the launcher does not need."""
    header, position = {}, 0
    for name, (dtype, shape) in tensors.items():
        end = position + prod(shape) * DTYPE_BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, end]}
        position = end
    encoded = json.dumps(header).encode()
    path.write_bytes(HEADER_LENGTH.pack(len(encoded)) + encoded + bytes(position))
