"""A notebook's run, as the worker sees it: its policy, and the outputs of the models that it writes."""

import csv
import json
import os
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.numpy import load

from lethe.competition.file import RunRules
from lethe.data.files import read_json, read_tensors
from lethe.data.stored_sets import StoredSet
from lethe.device import ran_out_of_memory
from lethe.errors import InvalidInput, InvalidSubmission
from lethe.evaluation.evaluators import Evaluator
from lethe.evaluation.image_evaluation import NonFiniteOutputs
from lethe.evaluation.shard_outputs import RunOutputs
from lethe.runtime.error_classes import WARNING, Blame, ErrorClass
from lethe.runtime.weights_layout import ORIGINAL_MODEL
from lethe.submission.notebook import ENTRY_FILE
from sandbox.frame_reader import NotebookRun
from sandbox.guest.frame_format import AGAIN, FIRST, SECOND
from sandbox.policy import Mount, RunPolicy
from sandbox.run_request import RunRequest, RunResult
from sandbox.verdict import Verdict

MODELS = 3
REFUSED = frozenset({ErrorClass.REWRITTEN_MODEL, ErrorClass.UNORDERED_MODELS, ErrorClass.OTHER_MODELS})
TOLERANCE = 1e-3  # of the largest weight, where a device does not repeat itself to the bit
DEPENDS = (
    f"{WARNING} Later models of this notebook do not come out like its first one, although all random numbers are the "
    "same: they depend on earlier models, or on their number. Here every run is the first model of a process of its "
    "own. If later models are meant to differ, let the whole notebook run once: # lethe: mode = notebook"
)


@dataclass
class ProgramComparison:
    """What was found. verdict: of a program whose first model is not the one that Kaggle would have taken."""

    notes: list[str] = field(default_factory=list)
    verdict: Verdict | None = None


def is_compared(request: RunRequest) -> bool:
    """Return whether the program writes models of its own, so that there is a second one to look at."""
    return request.entry_point.program == "saves"


def compare_program(
    run: Callable[[RunRequest], RunResult], request: RunRequest, *, first: RunResult, run_limit_s: float, setup_s: float
) -> ProgramComparison:
    """Run the program to its second model, again with the same random numbers, and compare with `first`."""
    models: dict[int, bytes] = {}
    times_s: list[float] = [time.monotonic()]

    def take(slot: int, weights: bytes) -> None:
        times_s.append(time.monotonic())
        models[slot] = weights

    longer = replace(request, original=None, notebook=NotebookRun(MODELS, take), wall_time_s=4 * run_limit_s + setup_s)
    result = run(longer)
    comparison = ProgramComparison()
    if result.verdict.fault in {Blame.HOST, Blame.STOPPED} or result.verdict.error_class in REFUSED:
        comparison.verdict = result.verdict
        return comparison
    comparison.notes.append(_in_words(first, times_s, run_limit_s=run_limit_s))
    if len(models) < MODELS:
        comparison.notes.append(_not_compared(result))
    elif not equal_models(models[SECOND], models[AGAIN]):
        comparison.notes.append(DEPENDS)
    if FIRST in models and first.weights is not None and not equal_models(models[FIRST], first.weights):
        comparison.notes.append(f"{WARNING} Two runs with the same seeds gave different models.")
    return comparison


def equal_models(first: bytes, second: bytes, *, tolerance: float = TOLERANCE) -> bool:
    """Return whether two safetensors files hold the same weights, but for what a device may round differently."""
    if first == second:
        return True
    others = load(second)
    pairs = ((value, others[name]) for name, value in load(first).items())
    return all(np.allclose(a, b, rtol=0, atol=tolerance * float(np.abs(a).max(initial=0))) for a, b in pairs)


def _in_words(first: RunResult, times_s: list[float], *, run_limit_s: float) -> str:
    text = (
        "[lethe] Each run runs this notebook until its first model, with its seeds mixed with the run's. "
        f"A run took {first.wall_time_s:.1f} s of {run_limit_s:g} s"
    )
    if len(times_s) <= SECOND + 1:
        return f"{text}."
    to_first, to_second = times_s[FIRST + 1] - times_s[0], times_s[SECOND + 1] - times_s[FIRST + 1]
    share = max(0.0, 1 - to_second / to_first)
    return f"{text}, about {share:.0%} of it before the first model's own part."


def _not_compared(result: RunResult) -> str:
    if result.verdict.error_class == ErrorClass.ONE_MODEL:
        return "[lethe] The notebook writes one model."
    return f"{WARNING} The notebook's second model could not be looked at: {result.verdict.message or 'no model'}"


COLUMNS = ("image_id", "age_group", "age", "person_id")
SETS = ("retain", "forget", "validation")
PNG_COMPRESSION = 1  # images this small gain nothing from more
# What shell lines of notebooks call; `zip` and `python` are the sandbox's own.
PROGRAMS = (
    "sh", "bash", "ls", "du", "df", "cat", "cp", "mv", "rm", "mkdir", "rmdir", "touch", "echo", "wc", "head",
    "tail", "grep", "sed", "find", "sort", "uniq", "xargs", "date", "sleep", "free", "nproc", "env", "pwd", "tee",
    "tr", "test",
)  # fmt: skip
MIB = 1 << 20
SMOKE_MODELS = 1  # a notebook's run on the public sample ends with its first model
SMOKE_SETUP_S = 120.0  # importing libraries and reading images, before a notebook's first model
MODELS_ON_DISK = 3  # that the scratch must hold at the least: one being written, one looked at, an archive


class NoNotebookLayout(InvalidInput):
    slug, title = "no-notebook-layout", "This split cannot be shown in the form that notebooks read"


def notebook_mounts(data_dir: Path, cache: Path, *, key: str, input_folder: str) -> tuple[Mount, ...]:
    """Return a notebook's mounts on `data_dir`, laid out once for each `key`. Raises NoNotebookLayout."""
    folder = cache / key / input_folder / data_dir.name
    if not folder.is_dir():
        _make(data_dir, folder, input_folder=input_folder)
    return (Mount(source=str(folder), target="/kaggle"), *program_mounts())


def program_mounts() -> tuple[Mount, ...]:
    """Return mounts of this host's shell and small programs, as far as it has them."""
    programs = ((name, shutil.which(name, path="/bin:/usr/bin")) for name in PROGRAMS)
    mounts = [Mount(source=str(Path(path).resolve()), target=f"/bin/{name}") for name, path in programs if path]
    return (
        *mounts,
        *(Mount(source=mount.source, target="/usr/bin/env") for mount in mounts if mount.target == "/bin/env"),
    )


def write_layout(data_dir: Path, into: Path) -> None:
    """Write the tables, images, weights and counts of the data in `data_dir` (a visible folder) below `into`."""
    network = read_json(data_dir / "network.json")
    channels = int(network["input_shape"][0])
    if channels not in (1, 3):
        raise NoNotebookLayout(f"images need 1 or 3 channels to be PNG files; these have {channels}")
    into.mkdir(parents=True, exist_ok=True)
    sets = {name: StoredSet.read(data_dir / f"{name}.safetensors") for name in SETS}
    for name, stored in sets.items():
        _write_table(into / f"{name}.csv", stored)
        _write_pictures(into / "images", stored)
    state = read_tensors(data_dir / ORIGINAL_MODEL)
    torch.save({name: tensor.clone() for name, tensor in state.items()}, into / "original_model.pth")
    counts = class_counts(sets, n_classes=int(network["n_classes"]))
    (into / "age_class_weights.json").write_text(json.dumps(counts), encoding="utf-8")
    (into / "network.json").write_text(json.dumps(network), encoding="utf-8")


def class_counts(sets: Mapping[str, StoredSet], *, n_classes: int) -> dict[str, int]:
    """Return how many training images each class has, by its number as a text."""
    counted = Counter(label for name in ("retain", "forget") for label in sets[name].labels.tolist())
    return {str(label): counted[label] for label in range(n_classes)}


def _make(data_dir: Path, folder: Path, *, input_folder: str) -> None:
    """Make the folder to mount, completely or not at all; the first of several processes wins."""
    part = folder.with_name(f".{folder.name}-{secrets.token_hex(6)}")
    try:
        write_layout(data_dir, part / "input" / input_folder)
        for name in ("tmp", "working"):
            (part / name).mkdir()
        _open_for_reading(part)
        try:
            part.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write_table(path: Path, stored: StoredSet) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        ages = stored.labels if stored.ages is None else stored.ages
        columns = (stored.persons, stored.ids, stored.labels, ages)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        writer.writerows((f"{person}-{image}", label, age, person) for person, image, label, age in rows)


def _write_pictures(folder: Path, stored: StoredSet) -> None:
    pairs = zip(stored.persons.tolist(), stored.ids.tolist(), strict=True)
    for position, (person, image) in enumerate(pairs):
        path = folder / str(person) / f"{image}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = stored.images[position].permute(1, 2, 0).squeeze(-1).contiguous().numpy()
        Image.fromarray(pixels).save(path, compress_level=PNG_COMPRESSION)


def _open_for_reading(folder: Path) -> None:
    for base, _folders, names in os.walk(folder):
        Path(base).chmod(0o755)
        for name in names:
            Path(base, name).chmod(0o644)


def is_notebook(entry_point: Mapping[str, Any]) -> bool:
    """Return whether the submission is run once, by its own loop."""
    return entry_point.get("mode") == "notebook"


def is_program(entry_point: Mapping[str, Any]) -> bool:
    """Return whether each run executes the whole notebook."""
    return bool(entry_point.get("program"))


def reads_kaggle_folder(entry_point: Mapping[str, Any]) -> bool:
    """Return whether the submission came as a notebook, whose code may read the competition's folder."""
    return entry_point.get("file") == ENTRY_FILE


def with_kaggle_folder(
    policy: RunPolicy, data_dir: Path, *, cache: Path, key: str, competition: RunRules, required: bool
) -> RunPolicy:
    """Return the policy with /kaggle mounted. Where images cannot be shown so, only a notebook's own run fails."""
    try:
        mounts = notebook_mounts(data_dir, cache, key=key, input_folder=competition.submissions.input_folder)
    except NoNotebookLayout:
        if required:
            raise
        return policy
    return replace(policy, mounts=(*policy.mounts, *mounts))


def program_policy(policy: RunPolicy, competition: RunRules, *, frame_bytes: int) -> RunPolicy:
    """Return the policy of one run of a notebook's program, with its files and its own start."""
    limits = competition.limits
    start_s = max(0.0, limits.run_wall_time_floor_s - limits.run_start_time_s)
    scratch_mib = max(limits.scratch_mib, scratch_for_models(frame_bytes))
    return replace(
        policy,
        scratch_mib=scratch_mib,
        file_size_mib=max(policy.file_size_mib, scratch_mib),
        memory_mib=limits.memory_mib + scratch_mib,
        cpu_time_s=None if policy.cpu_time_s is None else policy.cpu_time_s + start_s,
    )


def scratch_for_models(frame_bytes: int) -> int:
    """Return how many MiB of scratch a notebook needs at the least."""
    return MODELS_ON_DISK * (frame_bytes // MIB + 2)


def notebook_policy(policy: RunPolicy, competition: RunRules, *, frame_bytes: int, sample: bool) -> RunPolicy:
    """Return the policy of a complete notebook: the time of all runs, space for its files, memory for that room."""
    limits, n_models = competition.limits, SMOKE_MODELS if sample else competition.n_models
    return replace(
        program_policy(policy, competition, frame_bytes=frame_bytes),
        wall_time_s=min(limits.wall_time_s, policy.wall_time_s + SMOKE_SETUP_S) if sample else limits.wall_time_s,
        cpu_time_s=None if policy.cpu_time_s is None else n_models * policy.cpu_time_s + SMOKE_SETUP_S,
        scratch_inodes=max(policy.scratch_inodes, 4 * competition.n_models + 1024),
    )


class NoMemoryLeft(InvalidSubmission):
    """A notebook lives on while its models are evaluated, and has taken what that needs."""

    slug, title = ErrorClass.OUT_OF_MEMORY, "The notebook left no memory on the GPU"


@dataclass
class NotebookOutputs:
    """The outputs of a notebook's models, by slot; the last of a slot counts. n_kept: slots whose weights are kept."""

    evaluator: Evaluator | None
    on_model: Callable[[float], None]
    n_kept: int = 0
    outputs: dict[int, RunOutputs | NonFiniteOutputs | NoMemoryLeft] = field(default_factory=dict)
    took_s: dict[int, float] = field(default_factory=dict)
    kept: dict[int, bytes] = field(default_factory=dict)
    _since: float = field(default_factory=time.monotonic)

    def take(self, slot: int, weights: bytes) -> None:
        """Evaluate one model and drop its weights, unless they may be of the first runs."""
        took_s = time.monotonic() - self._since
        if self.evaluator is not None:
            try:
                self.outputs[slot] = self.evaluator.evaluate(weights)
            except NonFiniteOutputs as error:  # decides nothing unless this model is chosen
                self.outputs[slot] = error
            except RuntimeError as error:
                if not ran_out_of_memory(error):
                    raise
                self.outputs[slot] = NoMemoryLeft(
                    "the notebook holds so much of the GPU's memory that a model it saved could not be evaluated; "
                    "call torch.cuda.empty_cache() before saving, and keep less on the GPU"
                )
        if slot < self.n_kept:
            self.kept[slot] = weights
        is_new = slot not in self.took_s
        self.took_s[slot] = took_s
        if is_new:
            self.on_model(took_s)
        self._since = time.monotonic()

    def chosen(self, slots: Sequence[int]) -> list[RunOutputs]:
        """Return the outputs of the models that count. Raises why the first without outputs has none."""
        outputs = []
        for slot in slots:
            output = self.outputs[slot]
            if isinstance(output, InvalidSubmission):
                raise output
            outputs.append(output)
        return outputs

    def kept_of(self, slots: Sequence[int]) -> list[bytes]:
        """Return the weights of the first models that count, up to the first one that was not kept."""
        return [self.kept[slot] for slot in takewhile(self.kept.__contains__, slots)]
