"""Metrics beside the score, from the stored arrays of an evaluation and of its split."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import structlog
import torch
from numpy.typing import NDArray

from lethe.competition.report_section import levels_for_metric
from lethe.competition.task import PROBED_LEVEL
from lethe.device import memory_given_back
from lethe.errors import AppError, HostFault, NotFound
from lethe.evaluation.manifest import Manifest
from lethe.evaluation.model_outputs import PROBED_REFERENCES, read_probed_references, split_inputs
from lethe.evaluation.probes.split_probes import SplitProbes, first_models, model_files
from lethe.evaluation.ranking import with_attack_seed
from lethe.evaluation.shard_outputs import ShardOutputs, join
from lethe.metrics import Inputs, InvalidMetricInput, MetricEvaluation, evaluate
from lethe.metrics.core.result import MetricResult
from server.evaluations.results import weights_key
from server.metric_results import metric_results
from server.metric_results.metric_results import ComputedMetric, WaitingMetric
from server.models.evaluation import Shard, ShardState
from server.storage import DamagedFile
from worker.context import WorkerContext
from worker.evaluation.run_results import State, make_again, read_kept_weights, read_results
from worker.evaluation.scoring_job import ScoringWork, scoring_work
from worker.host import graceful_shutdown
from worker.host.heartbeat import Heart
from worker.source_networks import has_source, probe_models
from worker.split_storage.local_splits import local_file, local_split, repair_if_damaged

PREPARE = "keep weights in [report] (`keep_weights`), prepare the split again with `lethe competition prepare`"
log = structlog.get_logger()
BEATS_OF_A_LEASE = 4
LOST = "its outputs were damaged, and its runs could not be made again"
TABLE_CELLS = 200  # of one column; longer ones are left out


def probed_runs(context: WorkerContext, work: ScoringWork, outputs: Sequence[ShardOutputs]) -> dict[str, NDArray[Any]]:
    """Return the arrays of level 4 of the probed first runs. Raises InvalidMetricInput, HostFault or DamagedSplit."""
    split_dir = local_split(context, work)
    manifest = Manifest.read(split_dir)
    if PROBED_REFERENCES not in manifest.files:
        raise InvalidMetricInput(f"the split was prepared without the weights of its references: {PREPARE}")
    n_probed = len(read_probed_references(split_dir)["retrained"]["weight_norm"])
    states = _kept(context, list(zip(work.shards, outputs, strict=True)))[:n_probed]
    files = (local_file(context, work, name) for name in model_files(manifest, "retrained"))
    if has_source(split_dir):
        return probe_models(context.settings, split_dir, states, first_models(files, len(states)))
    device = context.settings.worker_device
    with memory_given_back(torch.device(device)):
        return SplitProbes.load(split_dir, device=device).arrays(
            states, first_models(files, len(states)), on_model=_leave_if_asked
        )


def _leave_if_asked() -> None:
    """Allow a worker to stop between two models; another one computes the rest."""
    if graceful_shutdown.is_over():
        raise HostFault("the worker stops; the probes begin again elsewhere")


def _kept(context: WorkerContext, shards: Sequence[tuple[Shard, ShardOutputs]]) -> list[State]:
    try:
        states = read_kept_weights(context.storage, shards)
    except DamagedFile as error:
        damaged = [shard for shard, _ in shards if weights_key(shard.result_key or "") == error.key]
        raise make_again(context, shards[0][0].evaluation_id, damaged) from error
    except NotFound as error:
        raise InvalidMetricInput(
            f"the weights of the submission's runs are no longer stored ({error.detail}): evaluate it once more"
        ) from error
    if not states:
        raise InvalidMetricInput(
            f"no weights of the submission's runs are kept, as there are where `keep_weights` was set before it was "
            f"evaluated: {PREPARE} and evaluate the submission once more"
        )
    return states


def compute_metrics(context: WorkerContext, evaluation_id: str) -> int:
    """Compute and store what an evaluation lacks, each at once, or give it up. Return how many."""
    with context.database.read() as session:
        asked = metric_results.waiting(session, evaluation_id)
        if not asked:
            return 0
        work = scoring_work(session, evaluation_id)

    def keep() -> bool:
        with context.database.write() as session:
            metric_results.keep(session, evaluation_id)
        return True

    keep()
    states = {shard.state for shard in work.shards}
    if states & {ShardState.FAILED.value, ShardState.CANCELLED.value}:
        gone = ComputedMetric(metric_version=0, not_computed=LOST)
        _record(context, {each.row_id: gone for each in asked})
        return len(asked)
    if states != {ShardState.DONE.value}:
        return 0  # damaged outputs are being made again; the last of them asks for the metrics
    with (
        repair_if_damaged(context, evaluation_id),
        Heart(keep, every_s=context.settings.lease_s / BEATS_OF_A_LEASE),
    ):
        hopeless = {each.row_id: _given_up(each) for each in asked if each.attempts >= context.settings.max_attempts}
        _record(context, hopeless)
        _compute(context, work, [each for each in asked if each.row_id not in hopeless])
    log.info("metrics computed", evaluation=evaluation_id, metrics=len(asked))
    return len(asked)


def _compute(context: WorkerContext, work: ScoringWork, asked: Sequence[WaitingMetric]) -> None:
    @cache  # reading the arrays is part of the first metric's attempt
    def outputs() -> list[ShardOutputs]:
        return read_results(context, work.evaluation_id, work.shards)

    @cache
    def inputs() -> Inputs:
        return _inputs(context, work, outputs())

    probed = [each for each in asked if PROBED_LEVEL in levels_for_metric(each.metric_id)]
    for each in asked:
        if each not in probed:
            with _attempt(context, [each]):
                computed = {each.row_id: _computed(inputs(), each, work)}
            _record(context, computed)
    if probed:
        with _attempt(context, probed):
            computed = _of_probes(context, work, outputs(), probed)
        _record(context, computed)


def _of_probes(
    context: WorkerContext, work: ScoringWork, outputs: list[ShardOutputs], asked: Sequence[WaitingMetric]
) -> dict[int, ComputedMetric]:
    """Return metrics of level 4 by row."""
    try:
        arrays = probed_runs(context, work, outputs)
    except InvalidMetricInput as error:
        return {each.row_id: ComputedMetric(metric_version=0, not_computed=str(error)) for each in asked}
    except AppError:
        raise  # the host's: tried again
    except Exception as error:
        log.exception("probes failed", evaluation=work.evaluation_id)
        return {each.row_id: _failed(error) for each in asked}
    inputs = _inputs(context, work, outputs, probed={"unlearned": arrays})
    return {each.row_id: _computed(inputs, each, work) for each in asked}


def _inputs(context: WorkerContext, work: ScoringWork, outputs: list[ShardOutputs], **more: Any) -> Inputs:
    unlearned = join(outputs).arrays()
    return split_inputs(
        local_split(context, work), unlearned, scored_by=work.scoring, attack_seed=work.attack_seed, **more
    )


def _given_up(asked: WaitingMetric) -> ComputedMetric:
    return ComputedMetric(metric_version=0, not_computed=f"{asked.attempts} attempts at it ended with their worker")


@contextmanager
def _attempt(context: WorkerContext, metrics: Sequence[WaitingMetric]) -> Iterator[None]:
    """Count an attempt at metrics, which stays counted only if it never comes to an end here."""
    with context.database.write() as session:
        for each in metrics:
            metric_results.begin(session, each)
    try:
        yield
    except Exception:
        with context.database.write() as session:
            for each in metrics:
                metric_results.take_back(session, each)
        raise


def _record(context: WorkerContext, computed: dict[int, ComputedMetric]) -> None:
    with context.database.write() as session:
        metric_results.record(session, computed)


def _computed(inputs: Inputs, asked: WaitingMetric, work: ScoringWork) -> ComputedMetric:
    parameters = with_attack_seed(asked.metric_id, asked.parameters, work.attack_seed)
    try:
        (evaluation,) = evaluate(inputs, [(asked.metric_id, parameters)]).values()
    except InvalidMetricInput as error:
        return ComputedMetric(metric_version=0, not_computed=str(error))
    except Exception as error:  # a fault of ours in one metric must not hide the others
        log.exception("metric failed", metric=asked.metric_id)
        return _failed(error)
    return as_record(evaluation)


def _failed(error: Exception) -> ComputedMetric:
    return ComputedMetric(metric_version=0, not_computed=f"could not be computed ({type(error).__name__})")


def as_record(evaluation: MetricEvaluation) -> ComputedMetric:
    """Return a computed metric in its stored form: JSON numbers, without large arrays."""
    result = evaluation.result
    if result is None:
        return ComputedMetric(metric_version=evaluation.metric.version, not_computed=evaluation.not_computed)
    low, high = result.interval or (None, None)
    return ComputedMetric(
        metric_version=evaluation.metric.version,
        value=_number(result.value),
        interval_low=_number(low),
        interval_high=_number(high),
        standard_deviation=_number(result.standard_deviation),
        oracle=_value(evaluation.oracle),
        original=_value(evaluation.original),
        table={name: _cell(cell) for name, cell in result.table.items() if _fits(cell)},
        notes=[*result.notes, *evaluation.reference_notes],
    )


def _value(result: MetricResult | None) -> float | None:
    return None if result is None else _number(result.value)


def _number(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def _fits(cell: Any) -> bool:
    return isinstance(cell, str | int | float | None) or len(cell) <= TABLE_CELLS


def _cell(cell: Any) -> Any:
    if isinstance(cell, str | int | None):
        return cell
    if isinstance(cell, float | np.floating):
        return _number(float(cell))
    return [_cell(each.item() if isinstance(each, np.generic) else each) for each in cell]
