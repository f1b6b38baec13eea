"""What would become of a file: checked as at the door, then run a few times on the public sample in the sandbox."""

import json
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from sandbox.launcher import Launcher, RunRequest, RunResult, Sandbox, SandboxSpec
from sandbox.notebook_stream import NotebookRun
from sandbox.policy import RunPolicy
from sandbox.run_log import readable_log
from sandbox.verdict import Verdict
from server.competitions.config_file import Limits, Metric, Submissions
from server.errors import InvalidInput, InvalidSubmission
from server.submissions.package import Package, load_package
from worker.entry import entry_point
from worker.inference import NonFiniteOutputs, RunOutputs
from worker.limits import run_policy
from worker.notebook_layout import notebook_mounts
from worker.notebook_runs import MIB, MODELS_ON_DISK, SMOKE_SETUP_S, NotebookOutputs, reads_kaggle_folder
from worker.results import ShardOutputs, model_outputs
from worker.scoring.final import ModelOutputs
from worker.scoring_job import score_outputs
from worker.starter_kit.sample_models import sample_evaluator

FEWEST_FOR_A_SCORE = 3
OnRun = Callable[[int], None]


@dataclass(frozen=True)
class Kit:
    """A starter kit on this machine."""

    data: Path
    about: dict[str, Any]

    @classmethod
    def at(cls, folder: Path) -> "Kit":
        """Return the kit in `folder`. Raises InvalidInput if there is none."""
        path = folder / "data" / "kit.json"
        if not path.is_file():
            raise InvalidInput(f"{folder} is no starter kit: it has no data/kit.json; `lethe init` makes one")
        return cls(data=folder / "data", about=json.loads(path.read_text(encoding="utf-8")))

    @property
    def limits(self) -> Limits:
        return Limits.model_validate(self.about["limits"])

    @property
    def submissions(self) -> Submissions:
        return Submissions.model_validate(self.about["submissions"])


@dataclass
class Checked:
    """What was found. `verdict` is the first failure; `log` what the runs printed."""

    package: Package
    seconds: list[float] = field(default_factory=list)
    peak_memory_mib: float = 0.0
    outputs: list[RunOutputs] = field(default_factory=list)
    verdict: Verdict | None = None
    log: str = ""
    estimate: float | None = None

    def as_json(self, kit: Kit) -> dict[str, Any]:
        """Return everything as plain values."""
        failed = self.verdict
        run_s = statistics.median(self.seconds) if self.seconds else None
        return {
            "kind": self.package.kind,
            "entry_point": self.package.entry_point.as_data(),
            "runs": len(self.outputs),
            "run_s": run_s,
            "run_limit_s": kit.about["run_wall_time_s"],
            "all_runs_s": run_s * kit.about["n_models"] if run_s is not None else None,
            "all_runs_limit_s": kit.limits.wall_time_s,
            "n_models": kit.about["n_models"],
            "peak_memory_mib": self.peak_memory_mib,
            "retain_accuracy": float(np.mean([o.retain_accuracy for o in self.outputs])) if self.outputs else None,
            "validation_accuracy": float(np.mean([o.test_accuracy for o in self.outputs])) if self.outputs else None,
            "score_estimate": self.estimate,
            "failure": None
            if failed is None
            else {
                "error_class": failed.error_class,
                "message": failed.message,
                "exception_type": failed.exception_type or None,
                "file": failed.file or None,
                "line": failed.line or None,
            },
        }


def check_file(path: Path, kit: Kit, *, runs: int, backend: str, on_run: OnRun) -> Checked:
    """Check a file as the server would, and run it. Raises InvalidSubmission for what it would refuse at the door."""
    package = load_package(path.read_bytes(), path.name, modes=kit.submissions.modes)
    checked = Checked(package)
    with tempfile.TemporaryDirectory(prefix="lethe-check-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # root drops to a user of its own, who must find its code
        code_dir = _staged(package, folder / "stage")
        spec = SandboxSpec(
            data_dir=_data_for_sandbox(kit, folder),
            stage_dir=folder / "stage",
            policy=_policy(package, kit, folder),
            backend=backend,
            production=False,
        )
        with Launcher(spec).start() as sandbox:
            request = RunRequest(
                code_dir=code_dir,
                entry_point=entry_point(package.entry_point.as_data()),
                kind="sample",
                map_cuda=kit.submissions.cuda == "map-to-cpu",
            )
            run = _run_notebook if package.entry_point.mode == "notebook" else _run_function
            run(checked, sandbox, request, kit, runs=runs, on_run=on_run)
    if checked.verdict is None:
        checked.estimate = _estimate(checked.outputs, kit)
    return checked


def _run_function(
    checked: Checked, sandbox: Sandbox, request: RunRequest, kit: Kit, *, runs: int, on_run: OnRun
) -> None:
    evaluator = sample_evaluator(kit.data)
    for run in range(runs):
        result = sandbox.run(replace(request, run=run, seed=run))
        if not _took(checked, result) or result.weights is None:
            return
        try:
            checked.outputs.append(evaluator.evaluate(result.weights))
        except NonFiniteOutputs as error:
            checked.verdict = replace(result.verdict, outcome="failed", error_class=error.slug, message=error.detail)
            return
        checked.seconds.append(result.wall_time_s)
        on_run(run + 1)


def _run_notebook(
    checked: Checked, sandbox: Sandbox, request: RunRequest, kit: Kit, *, runs: int, on_run: OnRun
) -> None:
    done: list[float] = []

    def count(took_s: float) -> None:
        done.append(took_s)
        on_run(len(done))

    models = NotebookOutputs(sample_evaluator(kit.data), on_model=count)
    result = sandbox.run(replace(request, notebook=NotebookRun(runs, models.take)))
    if not _took(checked, result):
        return
    try:
        checked.outputs = models.chosen(result.chosen)
    except InvalidSubmission as error:
        checked.verdict = replace(result.verdict, outcome="failed", error_class=error.slug, message=error.detail)
        return
    checked.seconds = done[1:] or done  # the first holds the notebook's preparations


def _took(checked: Checked, result: RunResult) -> bool:
    checked.log += readable_log(result.log, max_chars=len(result.log))
    checked.peak_memory_mib = max(checked.peak_memory_mib, result.peak_memory_mib)
    if result.verdict.outcome != "weights":
        checked.verdict = result.verdict
        return False
    return True


def _policy(package: Package, kit: Kit, folder: Path) -> RunPolicy:
    policy = replace(
        run_policy(kit.limits, retraining_time_s=0.0, threads=1), wall_time_s=float(kit.about["run_wall_time_s"])
    )
    if package.entry_point.mode == "notebook":
        frame_mib = (kit.data / "original_model.safetensors").stat().st_size // MIB
        scratch_mib = max(policy.scratch_mib, MODELS_ON_DISK * (frame_mib + 2))
        policy = replace(
            policy,
            wall_time_s=kit.limits.wall_time_s + SMOKE_SETUP_S,
            scratch_mib=scratch_mib,
            memory_mib=policy.memory_mib + scratch_mib,
        )
    if reads_kaggle_folder(package.entry_point.as_data()):
        mounts = notebook_mounts(
            kit.data, folder / "notebook-data", key="kit", input_folder=kit.submissions.input_folder
        )
        policy = replace(policy, mounts=(*policy.mounts, *mounts))
    return policy


def _staged(package: Package, stage: Path) -> Path:
    code_dir = stage / "code"
    for name, content in package.files.items():
        path = code_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return code_dir


def _data_for_sandbox(kit: Kit, folder: Path) -> Path:
    """Copy what a sandbox may see: the kit's folder may lie where another user finds no way, and holds more."""
    visible = folder / "visible"
    visible.mkdir()
    for name in (
        "network.json",
        *(f"{part}.safetensors" for part in ("original_model", "retain", "forget", "validation")),
    ):
        (visible / name).write_bytes((kit.data / name).read_bytes())
    return visible


def _estimate(outputs: list[RunOutputs], kit: Kit) -> float | None:
    """Return the score of these runs against as many of the kit's retrained models, if they are enough."""
    retrained = model_outputs(kit.data / "retrained_outputs.safetensors")
    n = min(len(outputs), len(retrained.confidences))
    if n < FEWEST_FOR_A_SCORE or retrained.retain_accuracy is None or retrained.test_accuracy is None:
        return None
    unlearned = ShardOutputs(
        confidences=np.stack([output.confidences for output in outputs[:n]]),
        retain_accuracy=np.array([output.retain_accuracy for output in outputs[:n]]),
        test_accuracy=np.array([output.test_accuracy for output in outputs[:n]]),
        wall_time_s=np.zeros(n),
    )
    metric = Metric.model_validate(kit.about["metric"]).model_copy(update={"bootstrap_resamples": 0})
    return score_outputs(
        ModelOutputs(unlearned.confidences, unlearned.retain_accuracy, unlearned.test_accuracy),
        ModelOutputs(retrained.confidences[:n], retrained.retain_accuracy[:n], retrained.test_accuracy[:n]),
        metric=metric,
    ).headline
