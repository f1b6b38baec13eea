"""A local check in the sandbox: a file is checked as at upload, then run a few times on the public sample."""

import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

from lethe.competition.run_limits import RetrainingCost
from lethe.errors import HostFault, InvalidSubmission
from lethe.evaluation.evaluators import sample_evaluator
from lethe.evaluation.image_evaluation import NonFiniteOutputs
from lethe.evaluation.local_check import Checked, Failure, Kit, OnRun, stage_files, with_estimate
from lethe.runtime.error_classes import Blame
from lethe.runtime.weights_layout import ORIGINAL_MODEL
from lethe.submission.package import Package, load_package
from sandbox.frame_reader import NotebookRun
from sandbox.launcher import Launcher, RunRequest, RunResult, Sandbox, SandboxSpec
from sandbox.policy import RunPolicy
from sandbox.run_request import readable_log
from worker.evaluation.notebook_runs import (
    SMOKE_SETUP_S,
    NotebookOutputs,
    compare_program,
    is_compared,
    notebook_mounts,
    reads_kaggle_folder,
    scratch_for_models,
)
from worker.evaluation.run_policy import entry_point, run_policy


def check_file(path: Path, kit: Kit, *, runs: int, backend: str, on_run: OnRun) -> Checked:
    """Check a file as the server would, and run it. Raises InvalidSubmission for what it would refuse at upload."""
    rules = kit.submissions
    package = load_package(path.read_bytes(), path.name, modes=rules.modes, libraries=rules.libraries)
    checked = Checked(package, sandbox=backend, filename=path.name)
    with tempfile.TemporaryDirectory(prefix="lethe-check-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # root drops to its own user, who must find its code
        code_dir = stage_files(package, folder / "stage")
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
                entry_point=entry_point(package.entry_point.as_data(), sent_as=path.name),
                kind="sample",
                map_cuda=kit.submissions.cuda == "map-to-cpu",
                mixes_seeds=True,
            )
            run = _run_notebook if package.entry_point.mode == "notebook" else _run_function
            run(checked, sandbox, request, kit, runs=runs, on_run=on_run)
    checked.name_files_as_sent()
    return with_estimate(checked, kit)


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
            checked.failure = Failure(error.slug, error.detail)
            return
        checked.seconds.append(result.wall_time_s)
        checked.cpu_seconds.append(result.cpu_time_s)
        on_run(run + 1)
        if run == 0 and is_compared(request) and not _compared(checked, sandbox, request, result, kit):
            return


def _compared(checked: Checked, sandbox: Sandbox, request: RunRequest, first: RunResult, kit: Kit) -> bool:
    """Look at the program's second model, too. Return whether its first is the one that counts."""
    limit_s = float(kit.about["run_wall_time_s"])
    comparison = compare_program(sandbox.run, request, first=first, run_limit_s=limit_s, setup_s=SMOKE_SETUP_S)
    checked.log += "".join(f"{note}\n" for note in comparison.notes)
    if comparison.verdict is not None:
        checked.failure = Failure(comparison.verdict.error_class, comparison.verdict.message)
    return comparison.verdict is None


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
        checked.failure = Failure(error.slug, error.detail)
        return
    checked.seconds = done[1:]  # the first holds the notebook's set-up: of one model alone, no time can be told
    if checked.seconds:
        checked.setup_s = max(0.0, done[0] - statistics.median(checked.seconds))


def _took(checked: Checked, result: RunResult) -> bool:
    checked.log += readable_log(result.log, max_chars=len(result.log))
    checked.log += "".join(f"{note}\n" for note in result.notes)
    checked.peak_memory_mib = max(checked.peak_memory_mib, result.peak_memory_mib)
    if result.verdict.fault is Blame.HOST:
        raise HostFault(f"the sandbox failed: {result.facts.host_error}")
    if result.verdict.outcome != "weights":
        verdict = result.verdict
        checked.failure = Failure(
            verdict.error_class, verdict.message, verdict.exception_type, verdict.file, verdict.line
        )
        return False
    return True


def _policy(package: Package, kit: Kit, folder: Path) -> RunPolicy:
    policy = replace(
        run_policy(kit.limits, retraining=RetrainingCost(), threads=1),
        wall_time_s=float(kit.about["run_wall_time_s"]),
        cpu_time_s=kit.about.get("run_cpu_time_s", kit.limits.run_cpu_time_s),
    )
    if package.entry_point.mode == "notebook" or package.entry_point.program:
        scratch_mib = max(policy.scratch_mib, scratch_for_models((kit.data / ORIGINAL_MODEL).stat().st_size))
        policy = replace(
            policy,
            scratch_mib=scratch_mib,
            file_size_mib=max(policy.file_size_mib, scratch_mib),
            memory_mib=policy.memory_mib + scratch_mib,
        )
    if package.entry_point.mode == "notebook":
        policy = replace(policy, wall_time_s=kit.limits.wall_time_s + SMOKE_SETUP_S)
    if reads_kaggle_folder(package.entry_point.as_data()):
        mounts = notebook_mounts(
            kit.data, folder / "notebook-data", key="kit", input_folder=kit.submissions.input_folder
        )
        policy = replace(policy, mounts=(*policy.mounts, *mounts))
    return policy


def _data_for_sandbox(kit: Kit, folder: Path) -> Path:
    """Copy what a sandbox may see: the kit's folder may lie where another user finds no way, and holds more."""
    visible = folder / "visible"
    visible.mkdir()
    for name in (
        "network.json",
        ORIGINAL_MODEL,
        *(f"{part}.safetensors" for part in ("retain", "forget", "validation")),
    ):
        (visible / name).write_bytes((kit.data / name).read_bytes())
    return visible
