"""One shard, claimed when there is one: sandbox stream -> inference -> rows. No transaction is open while a model runs.

Weights are dropped once they are evaluated, except those of the first runs that a competition keeps for probes."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog
from torch import Tensor

from lethe.data.errors import DamagedSplit
from lethe.errors import HostFault, InvalidSubmission
from lethe.evaluation.evaluators import Evaluator
from lethe.evaluation.model_outputs import read_integer_buffers
from lethe.runtime.error_classes import Blame, ErrorClass, name_as_sent
from lethe.submission.package import as_it_is_run
from sandbox.frame_reader import NotebookRun
from sandbox.launcher import RunRequest, RunResult, Sandbox
from sandbox.policy import RunPolicy
from server import telemetry
from server.evaluations.claimed_shard import ClaimedShard, ShardFailure
from server.models.evaluation import ShardKind
from server.models.submission import Fault
from worker.context import RunningContext, WorkerContext
from worker.evaluation.evaluation_pipeline import RunEvaluations, RunNotFinite, answers_of_run, run_evaluations
from worker.evaluation.notebook_runs import (
    SMOKE_MODELS,
    SMOKE_SETUP_S,
    NotebookOutputs,
    compare_program,
    is_compared,
    is_notebook,
)
from worker.evaluation.run_policy import entry_point, shard_policy
from worker.evaluation.run_results import (
    Done,
    KeptWeights,
    RunFailed,
    own_original,
    raise_fault,
    raise_unless_good,
    without_outputs,
)
from worker.host import backoff, graceful_shutdown, prometheus
from worker.host.backoff import SHARED
from worker.host.heartbeat import Heart
from worker.host.stage_folder import staged
from worker.jobs import Job, Stopped, run_job
from worker.split_storage.local_splits import repair_if_damaged
from worker.transport import Transport


def run_next(
    context: RunningContext, transport: Transport, run: Callable[[RunningContext, ClaimedShard], str]
) -> str | None:
    """Claim a shard and run it. Return how it ended; None if there was none."""
    shard = claim(context, transport)
    prometheus.CLAIMS.labels("nothing" if shard is None else "shard").inc()
    if shard is None:
        return None
    with structlog.contextvars.bound_contextvars(
        request_id=shard.request_id,
        submission=shard.submission_id,
        shard=shard.shard_id,
        attempt=shard.attempt,
        runs=f"{shard.first_run}-{shard.first_run + shard.n_runs - 1}",
    ):
        log.info("shard claimed", kind=shard.kind.value)
        with (
            prometheus.SHARD_SECONDS.time(),
            telemetry.span("shard", submission=shard.submission_id, id=shard.shard_id),
        ):
            end = run(context, shard)
        prometheus.SHARDS.labels(end).inc()
    return end


def claim(context: RunningContext, transport: Transport) -> ClaimedShard | None:
    """Return the fairest shard that this worker fits, or None."""
    if graceful_shutdown.is_asked():
        return None
    if state := backoff.out_of_service(context.cooling, context.settings):
        transport.report_out_of_service(state, context.cooling.reason)
        return None
    return transport.claim()


log = structlog.get_logger()
TRIES_WITHIN_TIME = 3  # as often as preparation measures a retraining; of these the least counts there


def run_shard(context: RunningContext, shard: ClaimedShard) -> str:
    """Run the shard to one of its ends and store that end. Return its name for the log."""
    job, started = ShardJob(context, shard), time.monotonic()
    end = run_job(job)
    log.info(
        "shard ended",
        end=end,
        runs=job.done.runs,
        wall_time_s=round(job.done.wall_time_s, 3),
        took_s=round(time.monotonic() - started, 3),
    )
    return end


@dataclass(frozen=True)
class ShardJob(Job[None]):
    """Runs of one submission. A run that fails ends its evaluation."""

    context: RunningContext
    shard: ClaimedShard
    done: Done = field(default_factory=Done)
    failures = (RunFailed,)

    def run(self) -> None:
        settings = self.context.settings
        every_s = min(settings.heartbeat_s, settings.lease_s / 3)
        with _report_damage(self.context, self.shard), Heart(self._beat, every_s=every_s) as heart:
            _run_all(self.context, self.shard, self.done, heart)

    def on_done(self, result: None) -> bool:
        shard, done = self.shard, self.done
        weights = done.kept.to_bytes()
        data = done.sample_answers if shard.kind is ShardKind.SMOKE else done.arrays(weights=weights).to_bytes()
        self.context.cooling.success()
        return self.context.leases.close(shard, data, done.logs, wall_time_s=done.wall_time_s, weights=weights)

    def on_failed(self, failed: RunFailed) -> bool:
        verdict = failed.verdict
        failure = ShardFailure(
            fault=Fault(verdict.fault.value),
            error_class=ErrorClass(verdict.error_class),
            message=verdict.message,
            run=failed.run,
            exception_type=verdict.exception_type or None,
            file=_own_name(self.shard, verdict.file),
            line=verdict.line or None,
            class_message=verdict.class_message,
            detail_bits=verdict.detail_bits,
        )
        return self.context.leases.fail(self.shard, failure, self.done.logs, runs_done=self.done.runs)

    def give_back(self, reason: str) -> bool:
        log.error("host fault", reason=reason, pause_s=self.context.cooling.fault(reason))
        return self.context.leases.give_back(self.shard, reason=reason, runs_done=self.done.runs)

    def hand_over(self) -> bool:
        return self.context.leases.hand_over(self.shard, runs_done=self.done.runs)

    def on_lease_lost(self) -> str:
        ended = self.context.leases.end_if_over_time(self.shard, runs_done=self.done.runs)
        return "over-time" if ended else "lost"

    def _beat(self) -> bool:
        done = self.done
        return self.context.leases.heartbeat(self.shard, runs_done=done.runs, wall_time_s=done.wall_time_s)


def _report_damage(context: RunningContext, shard: ClaimedShard) -> AbstractContextManager[None]:
    """Queue a check of a damaged split; a remote worker reports it as the reason for giving the shard back."""
    if isinstance(context, WorkerContext):
        return repair_if_damaged(context, shard.evaluation_id)
    return nullcontext()


def _run_all(context: RunningContext, shard: ClaimedShard, done: Done, heart: Heart) -> None:
    package = context.artefacts.package(shard)
    shard = replace(shard, entry_point=as_it_is_run(package, shard.filename, shard.entry_point))
    split_dir = context.artefacts.split(shard)
    sample = shard.kind is ShardKind.SMOKE
    data_dir = split_dir / ("sample" if sample else "visible")
    policy = shard_policy(context.settings, shard, data_dir)
    evaluator = None if sample else _evaluator(context, shard, split_dir)
    keeps = shard.competition.keep_weights if shard.kind is ShardKind.RUNS else 0
    done.kept = KeptWeights(keeps, split_dir)
    with staged(shard, package, context.stage_dir) as code_dir:
        sandbox = context.sandbox(data_dir, policy)
        context.leases.note_controls(shard, {**sandbox.controls, "frames": shard.n_runs})
        key = (data_dir, policy)
        if is_notebook(shard.entry_point):
            _run_notebook(context, shard, done, code_dir=code_dir, evaluator=evaluator, heart=heart, key=key)
            return
        with _evaluations(context, evaluator, done) as evaluations:
            for run, seed in enumerate(shard.seeds, start=shard.first_run):
                if heart.stopped or graceful_shutdown.is_over():
                    raise Stopped
                with own_original(context, shard, split_dir, run=run) as original:
                    request = _request(shard, code_dir, run=run, seed=seed, original=original)
                    integer_buffers = read_integer_buffers(original) if original else None
                    result = _run_one(context, sandbox, request, heart=heart, key=key)
                _take(result, run, done, evaluations=evaluations, integer_buffers=integer_buffers)
                if sample and is_compared(request):
                    _compare(context, sandbox, request, result, done, heart=heart, key=key)
                if sample and result.weights is not None and not heart.stopped:
                    device = context.settings.worker_device
                    done.sample_answers = answers_of_run(split_dir, result.weights, device=device)


@contextmanager
def _evaluations(context: RunningContext, evaluator: Evaluator | None, done: Done) -> Iterator[RunEvaluations | None]:
    """Yield what takes the runs' weights, None on the sample. Of failures, that of the first run counts."""
    if evaluator is None:
        yield None
        return
    try:
        overlapped = context.settings.worker_device == "cuda"
        with run_evaluations(evaluator, done.outputs, overlapped=overlapped) as evaluations:
            try:
                yield evaluations
            except RunFailed:
                evaluations.finish()
                raise
    except RunNotFinite as failed:
        raise without_outputs(failed.error, failed.run) from failed


def _evaluator(context: RunningContext, shard: ClaimedShard, split_dir: Path) -> Evaluator:
    """Return the loaded split; where a file of this host's copy is damaged, after fetching that file again."""
    try:
        return context.evaluator(split_dir, shard.manifest_sha256)
    except DamagedSplit:
        if not context.artefacts.repair_split(shard):
            raise
        return context.evaluator(split_dir, shard.manifest_sha256)


def _request(shard: ClaimedShard, code_dir: Path, *, run: int, seed: int, original: Path | None = None) -> RunRequest:
    return RunRequest(
        code_dir=code_dir,
        entry_point=entry_point(shard.entry_point, sent_as=shard.filename),
        run=run,
        seed=seed,
        kind="sample" if shard.kind is ShardKind.SMOKE else "hidden",
        map_cuda=shard.competition.submissions.cuda == "map-to-cpu",
        original=original,
        mixes_seeds=True,
    )


def _run_notebook(
    context: RunningContext,
    shard: ClaimedShard,
    done: Done,
    *,
    code_dir: Path,
    evaluator: Evaluator | None,
    heart: Heart,
    key: tuple[Path, RunPolicy],
) -> None:
    """Run a notebook once and keep the outputs of the models that count; on the sample its first model is enough."""

    def count(took_s: float) -> None:
        if done.runs < shard.n_runs:
            done.wall_times_s.append(took_s)

    models = NotebookOutputs(evaluator, on_model=count, n_kept=done.kept.n_kept)
    wanted = NotebookRun(shard.n_runs, models.take, stop_after=SMOKE_MODELS if evaluator is None else None)
    request = replace(_request(shard, code_dir, run=shard.first_run, seed=shard.seeds[0]), notebook=wanted)
    result = _run_one(context, context.sandbox(*key), request, heart=heart, key=key)
    raise_unless_good(result, done.runs, done, keep_log=evaluator is None)
    if evaluator is not None:
        try:
            done.outputs = models.chosen(result.chosen)
        except InvalidSubmission as error:
            raise without_outputs(error, done.runs) from error
        done.wall_times_s = [models.took_s[slot] for slot in result.chosen]
        for run, weights in enumerate(models.kept_of(result.chosen)):
            done.kept.add(run, weights)


def _compare(
    context: RunningContext,
    sandbox: Sandbox,
    request: RunRequest,
    first: RunResult,
    done: Done,
    *,
    heart: Heart,
    key: tuple[Path, RunPolicy],
) -> None:
    """Look at the program's second model, too. Raises RunFailed where the first is not the one that would count."""
    comparison = compare_program(
        lambda longer: _run_one(context, sandbox, longer, heart=heart, key=key),
        request,
        first=first,
        run_limit_s=key[1].wall_time_s,
        setup_s=SMOKE_SETUP_S,
    )
    done.logs.append((request.run, "\n".join(comparison.notes)))
    if comparison.verdict is not None:
        raise_fault(comparison.verdict, request.run)


def _run_one(
    context: RunningContext, sandbox: Sandbox, request: RunRequest, *, heart: Heart, key: tuple[Path, RunPolicy]
) -> RunResult:
    """Run once, up to twice more where time was used up beside other work. Raises HostFault on a shared device."""
    tries = TRIES_WITHIN_TIME if request.notebook is None else 1
    limit = ErrorClass.TIMEOUT if context.settings.worker_device == "cuda" else ErrorClass.TIME_LIMIT
    try:
        if limit is ErrorClass.TIMEOUT:
            context.pace.look()
        for _ in range(tries):
            result = sandbox.run(request, should_stop=lambda: heart.stopped or graceful_shutdown.is_over())
            if result.verdict.error_class != limit:
                break
        if result.verdict.error_class == limit is ErrorClass.TIMEOUT:
            _require_own_device(context, request.run)
    except Exception:
        context.drop_sandbox(*key)
        raise
    if result.verdict.fault is Blame.HOST:
        context.drop_sandbox(*key)
    return result


def _require_own_device(context: RunningContext, run: int) -> None:
    if (slower := context.pace.look()) > SHARED:
        raise HostFault(f"run {run} was too long while others used the device: {slower:.1f} times as slow")


def _take(
    result: RunResult,
    run: int,
    done: Done,
    *,
    evaluations: RunEvaluations | None,
    integer_buffers: Mapping[str, Tensor] | None,
) -> None:
    """Keep what a run gave, or raise how it failed."""
    raise_unless_good(result, run, done, keep_log=evaluations is None)
    if result.weights is None:
        raise RunFailed(run, result.verdict)
    if evaluations is not None:
        evaluations.add(run, result.weights, integer_buffers=integer_buffers)
        done.kept.add(run, result.weights, integer_buffers=integer_buffers)
    prometheus.RUN_SECONDS.observe(result.wall_time_s)
    done.wall_times_s.append(result.wall_time_s)
    done.cpu_times_s.append(result.cpu_time_s)


def _own_name(shard: ClaimedShard, file: str) -> str | None:
    """Return the file as its author knows it; a notebook's cells keep the names by which an excerpt is found."""
    if shard.filename.endswith(".ipynb") and file != shard.entry_point["file"]:
        return file or None
    return name_as_sent(file, shard.filename) if file else None
