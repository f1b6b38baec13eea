"""A notebook's run, as the worker sees it: its policy, and the outputs of the models that it writes."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from lethe.competition.file import RunRules
from lethe.device.memory import ran_out_of_memory
from lethe.errors import InvalidSubmission
from lethe.evaluation.evaluators import Evaluator
from lethe.evaluation.inference import NonFiniteOutputs
from lethe.evaluation.shard_outputs import RunOutputs
from lethe.runtime.error_classes import ErrorClass
from lethe.submission.notebook import ENTRY_FILE
from sandbox.policy import RunPolicy
from worker.evaluation.kaggle_layout import NoNotebookLayout, notebook_mounts

MIB = 1 << 20
SMOKE_MODELS = 1  # a notebook's run on the public sample ends with its first model
SMOKE_SETUP_S = 120.0  # importing libraries and reading images, before a notebook's first model
MODELS_ON_DISK = 3  # that the scratch must hold at the least: one being written, one looked at, an archive


def is_notebook(entry_point: Mapping[str, Any]) -> bool:
    """Return whether the submission is run once, by its own loop."""
    return entry_point.get("mode") == "notebook"


def is_program(entry_point: Mapping[str, Any]) -> bool:
    """Return whether each run runs the notebook by itself."""
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
    """Return the policy of one run of a notebook's program: space for its files, memory for them, and the time
    for its own start, which no other run makes for it: it imports libraries and reads images by itself."""
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
    """The outputs of a notebook's models, by slot. A slot that comes again replaces what came before.

    on_model: told after each model, with the seconds since the one before. n_kept: slots whose weights are kept.
    """

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
        found = []
        for slot in slots:
            output = self.outputs[slot]
            if isinstance(output, InvalidSubmission):
                raise output
            found.append(output)
        return found

    def kept_of(self, slots: Sequence[int]) -> list[bytes]:
        """Return the weights of the first models that count, up to the first one that was not kept."""
        return [self.kept[slot] for slot in takewhile(self.kept.__contains__, slots)]
