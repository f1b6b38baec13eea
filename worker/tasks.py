"""Thin tasks that compute. A message says only that there is work; what work, the database says.

They reach torch; those that do not are in `worker.server_tasks`.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from celery.signals import worker_process_init, worker_process_shutdown

from server import telemetry
from server.config import get_settings
from server.evaluations import evaluation_repository
from server.evaluations.claimed_shard import ClaimedShard
from server.queue import (
    COMPUTE_METRICS,
    EVALUATE_SHARD,
    GROUP_TIES,
    PREPARE_SHARD,
    PREPARE_SPLIT,
    SCORE_EVALUATION,
    send,
)
from worker.app import app
from worker.context import RunningContext, get_context
from worker.evaluation import metrics_job, scoring_job, shard_pipeline
from worker.evaluation.shard_pipeline import run_next
from worker.host import graceful_shutdown, prometheus
from worker.host.heartbeat import Heart
from worker.host.worker_info import find_gpu, pool_slot
from worker.preparation import prepare_split_job, train_shard_job
from worker.transport import REPORT_EVERY_S

log = structlog.get_logger()


@contextmanager
def _heartbeat() -> Iterator[None]:
    """Report that this process lives while it does what is no shard, which has a lease."""
    transport = get_context().transport
    transport.report()
    with Heart(transport.seen, every_s=REPORT_EVERY_S):
        yield


@contextmanager
def _traced(name: str, evaluation_id: str) -> Iterator[None]:
    """Continue the trace of the upload in logs and spans, as a shard's does."""
    with get_context().database.read() as session:
        trace = evaluation_repository.trace_of(session, evaluation_id)
    with (
        structlog.contextvars.bound_contextvars(**trace),
        telemetry.span(name, evaluation=evaluation_id, submission=trace.get("submission", "")),
    ):
        yield


@worker_process_init.connect
def _settle(**_: Any) -> None:
    """Give each process of the pool its own GPU."""
    if get_settings().worker_device == "cuda":
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as the device files are numbered
        os.environ["CUDA_VISIBLE_DEVICES"] = find_gpu(get_settings(), slot=pool_slot())


@worker_process_shutdown.connect
def _leave(**_: Any) -> None:
    """Close the sandboxes and say that this process takes nothing more."""
    if get_context.cache_info().currsize:
        try:
            get_context().transport.stop()
        finally:  # also where the database is silent
            get_context().close()


@app.task(name=EVALUATE_SHARD)
def evaluate_shard() -> str:
    """Claim the fairest shard and run it. A message with nothing behind it costs one query."""
    context = get_context()
    return run_next(context, context.transport, _run_shard) or "nothing to do"


def _run_shard(context: RunningContext, shard: ClaimedShard) -> str:
    send(EVALUATE_SHARD, to=shard.routing_key)  # where there was one there may be more: an idle worker looks
    end = shard_pipeline.run_shard(context, shard)
    send(EVALUATE_SHARD, to=shard.routing_key)  # whoever has worked looks for the next
    return end


@app.task(name=SCORE_EVALUATION)
def score_evaluation(evaluation_id: str) -> bool:
    """Score an evaluation whose runs are all done."""
    with _heartbeat(), prometheus.SCORE_SECONDS.time(), _traced("score", evaluation_id):
        recorded = scoring_job.score_evaluation(get_context(), evaluation_id)
    prometheus.SCORES.labels(recorded).inc()
    return recorded


@app.task(name=COMPUTE_METRICS)
def compute_metrics(evaluation_id: str) -> int:
    """Compute the metrics beside the score that an evaluation still lacks."""
    with _heartbeat(), _traced("metrics", evaluation_id):
        return metrics_job.compute_metrics(get_context(), evaluation_id)


@app.task(name=GROUP_TIES)
def group_ties(split_id: str) -> int:
    """Find which teams of a split's board the paired test does not tell apart."""
    return scoring_job.group_ties(get_context().database, split_id)


@app.task(name=PREPARE_SPLIT)
def prepare_split(split_id: str) -> bool:
    """Prepare a split, if it is its turn."""
    with _heartbeat():
        return prepare_split_job.prepare(get_context(), split_id)


@app.task(name=PREPARE_SHARD)
def prepare_shard() -> bool:
    """Finish a public split, or claim and train the next shard of models. Whoever has made one looks for the next."""
    with _heartbeat():
        made = not graceful_shutdown.is_asked() and (
            prepare_split_job.finish_public(get_context()) or train_shard_job.make_shard(get_context())
        )
    if made:
        send(PREPARE_SHARD)
    return made
