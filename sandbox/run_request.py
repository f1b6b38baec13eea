"""What the launcher is asked for and what it answers, as data."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sandbox.controls import BASELINE_CONTROLS, Control
from sandbox.frame_reader import NotebookRun
from sandbox.policy import RunPolicy
from sandbox.verdict import ExitFacts, Verdict

# Controls but for newline and tab; what turns text around; what cannot be seen; half a surrogate.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_ESCAPES = re.compile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]{0,512}(?:\x07|\x1b\\\\)|[@-Z\\\\-_])")
CUT = "\n[...]\n"


def readable_log(log: bytes, *, max_chars: int = 16_384) -> str:
    """Return the log as plain text of at most `max_chars`: its beginning and, mostly, its end."""
    lines = log.decode("utf-8", errors="replace").replace("\r\n", "\n").split("\n")
    text = "\n".join(line.rpartition("\r")[2] for line in lines)  # without a progress bar's earlier states
    text = _UNSAFE.sub("\ufffd", _ESCAPES.sub("", text))
    if len(text) <= max_chars:
        return text
    kept = max(0, max_chars - len(CUT))
    beginning = kept // 4
    return text[:beginning] + CUT + text[len(text) - (kept - beginning) :]


@dataclass(frozen=True)
class EntryPoint:
    """What to call in a submission.

    file: path below the submission's folder. style: whether loaders give dicts or (input, target) tuples.
    keywords: names beyond the four positional arguments that the function wants, of class_weights,
    class_counts, param_names, device and seed. sent_as: the upload's own name, for texts about its files.
    program: of a notebook that each run runs by itself: "saves" models of its own, of which the first is the run's, or
    only "defines" the function.
    """

    file: str = "submission.py"
    function: str = "unlearning"
    style: Literal["dict", "tuple"] = "dict"
    keywords: tuple[str, ...] = ()
    sent_as: str = ""
    program: Literal["", "saves", "defines"] = ""


@dataclass(frozen=True)
class SandboxSpec:
    """What a sandbox is started with.

    data_dir: a split's visible folder, shown read-only at /data.
    stage_dir: where the host puts unpacked submissions; a run sees only its own, at /submission.
    uid_slot: the slot whose user root drops to; None takes the first free one.
    neutral_dirs: folders in which the data may lie under a random name, since a run can read the folders' names; the
        first that takes hard links to it is used. None: the data is shown from where it lies.
    production: refuse back-ends without a boundary.
    library_sets: the folder in which sets of older libraries are installed.
    delegated_group: a version 2 control group that this user may make groups in.
    required_controls: protections without which the sandbox does not start (not asked of 'plain').
    """

    data_dir: Path
    stage_dir: Path
    policy: RunPolicy = field(default_factory=RunPolicy)
    backend: str = "bubblewrap"
    uid_slot: int | None = None
    neutral_dirs: tuple[Path, ...] = ()
    production: bool = True
    library_sets: Path | None = None
    delegated_group: Path | None = None
    required_controls: frozenset[Control] = BASELINE_CONTROLS


@dataclass(frozen=True)
class RunRequest:
    """One run: a submission below the stage folder, its number and its seed.

    run, kind: known on this side alone. A run is told neither, and the folder's name is one that it can read.
    kind: "hidden" keeps what the verdict says to names the host knows; "sample" is for public data, where a function
        that returns neither None nor a network is refused.
    mixes_seeds: mix the seeds that a notebook's program sets with this run's.
    original: a safetensors file below the stage folder whose weights the run starts from, shown to it in place of the
        data folder's original model, whose header it must have; None for the data folder's own.
    notebook: run it as a notebook, once and whole, and take the models that it writes. With an entry point that
        "saves", compare two runs of it: its first model, its second, and the first of another run that drew the same.
    wall_time_s: how long it may take, and of the processor, where that is not what the policy says.
    map_cuda: where there is no GPU, read "cuda" as "cpu" in what the code asks of torch.
    """

    code_dir: Path
    entry_point: EntryPoint = field(default_factory=EntryPoint)
    run: int = 0
    seed: int = 0
    kind: Literal["hidden", "sample"] = "hidden"
    original: Path | None = None
    notebook: NotebookRun | None = None
    map_cuda: bool = False
    mixes_seeds: bool = False
    wall_time_s: float | None = None


@dataclass(frozen=True)
class RunResult:
    """How one run ended. `weights` is a checked safetensors file, present exactly if the outcome is "weights".

    A notebook's models have been handed on already: `chosen` are the slots that count, in the order of the runs.
    notes: lines for the run's author beyond what it printed; none of a run on hidden data.
    """

    weights: bytes | None
    facts: ExitFacts
    verdict: Verdict
    wall_time_s: float
    cpu_time_s: float
    peak_memory_mib: float
    log: bytes
    chosen: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
