"""Metrics beside the score, from the stored arrays of an evaluation and of its split."""

import math
from typing import Any

import numpy as np
import structlog

from lethe.competition.metric_requests import levels_for_metric
from lethe.competition.task import PROBED_LEVEL
from lethe.errors import AppError
from lethe.evaluation.shard_outputs import ShardOutputs, join
from lethe.evaluation.split_inputs import split_inputs
from lethe.metrics import Inputs, InvalidMetricInput, MetricEvaluation, evaluate
from lethe.metrics.result import MetricResult
from server.evaluations import repository as evaluation_repository
from server.evaluations.scoring_metric import get_metric
from server.metric_results import service
from server.metric_results.service import ComputedMetric, WaitingMetric
from server.models.competition import Competition, Split
from server.models.evaluation import Evaluation, Shard, ShardKind
from server.storage import split_key
from worker.context import WorkerContext
from worker.evaluation.probed_runs import probed_runs
from worker.evaluation.scoring_job import ScoringWork
from worker.host.heartbeat import Heart
from worker.split_storage.local_splits import local_split

log = structlog.get_logger()
TABLE_CELLS = 200  # of one column; longer ones are left out


def compute_metrics(context: WorkerContext, evaluation_id: str) -> int:
    """Compute what an evaluation still lacks and store it. Return how many metrics that were."""
    with context.database.read() as session:
        asked = service.waiting(session, evaluation_id)
        if not asked:
            return 0
        evaluation = session.get_one(Evaluation, evaluation_id)
        split = session.get_one(Split, evaluation.split_id)
        competition = session.get_one(Competition, split.competition_id)
        shards = [s for s in evaluation_repository.get_shards(session, [evaluation_id]) if s.kind == ShardKind.RUNS]
        work = ScoringWork(
            evaluation_id=evaluation_id,
            shards=tuple(sorted(shards, key=lambda shard: shard.first_run)),
            split_key=split_key(competition.slug, split.visibility),
            manifest_sha256=split.manifest_sha256 or "",
            metric=get_metric(session, evaluation),
        )
    outputs = [_outputs(context, shard) for shard in work.shards]
    unlearned, split_dir = join(outputs).arrays(), local_split(context, work)
    probed = [each for each in asked if PROBED_LEVEL in levels_for_metric(each.metric_id)]
    inputs = split_inputs(split_dir, unlearned, scored_by=work.metric)
    _record(context, {each.row_id: _computed(inputs, each) for each in asked if each not in probed})
    if probed:
        _record(context, _of_probes(context, work, outputs, probed))
    log.info("metrics computed", evaluation=evaluation_id, metrics=len(asked))
    return len(asked)


def _of_probes(
    context: WorkerContext, work: ScoringWork, outputs: list[ShardOutputs], asked: list[WaitingMetric]
) -> dict[int, ComputedMetric]:
    """Return metrics of level 4 by row. Meanwhile nobody takes their message for lost: probes may take long."""
    row_ids = [each.row_id for each in asked]

    def still_at_it() -> bool:
        with context.database.write() as session:
            service.keep_waiting(session, row_ids)
        return True

    still_at_it()  # others may have been computed for long
    try:
        with Heart(still_at_it, every_s=service.LOST_AFTER.total_seconds() / 4):
            arrays = probed_runs(context, work, outputs)
    except InvalidMetricInput as error:
        return dict.fromkeys(row_ids, ComputedMetric(metric_version=0, not_computed=str(error)))
    except AppError:
        raise  # the host's: tried again
    except Exception as error:
        log.exception("probes failed", evaluation=work.evaluation_id)
        return dict.fromkeys(row_ids, _failed(error))
    probed = {"unlearned": arrays}
    split_dir = local_split(context, work)
    inputs = split_inputs(split_dir, join(outputs).arrays(), scored_by=work.metric, probed=probed)
    return {each.row_id: _computed(inputs, each) for each in asked}


def _record(context: WorkerContext, found: dict[int, ComputedMetric]) -> None:
    with context.database.write() as session:
        service.record(session, found)


def _outputs(context: WorkerContext, shard: Shard) -> ShardOutputs:
    return ShardOutputs.from_bytes(context.storage.read_verified(shard.result_key or "", shard.result_sha256 or ""))


def _computed(inputs: Inputs, asked: WaitingMetric) -> ComputedMetric:
    try:
        (found,) = evaluate(inputs, [(asked.metric_id, asked.parameters)]).values()
    except InvalidMetricInput as error:
        return ComputedMetric(metric_version=0, not_computed=str(error))
    except Exception as error:  # a fault of ours in one metric must not hide the others
        log.exception("metric failed", metric=asked.metric_id)
        return _failed(error)
    return as_record(found)


def _failed(error: Exception) -> ComputedMetric:
    return ComputedMetric(metric_version=0, not_computed=f"could not be computed ({type(error).__name__})")


def as_record(found: MetricEvaluation) -> ComputedMetric:
    """Return a computed metric as it is stored: numbers that JSON knows, without large arrays."""
    result = found.result
    if result is None:
        return ComputedMetric(metric_version=found.metric.version, not_computed=found.not_computed)
    low, high = result.interval or (None, None)
    return ComputedMetric(
        metric_version=found.metric.version,
        value=_number(result.value),
        interval_low=_number(low),
        interval_high=_number(high),
        standard_deviation=_number(result.standard_deviation),
        oracle=_value(found.oracle),
        original=_value(found.original),
        table={name: _cell(cell) for name, cell in result.table.items() if _fits(cell)},
        notes=[*result.notes, *found.reference_notes],
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
