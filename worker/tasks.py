"""Thin tasks. A message says only that there is work; what work, the database says."""

import os
from datetime import timedelta
from functools import lru_cache
from typing import Any

import structlog
from celery.signals import worker_process_init, worker_process_shutdown

from server import telemetry
from server.benchmarks import submitting as benchmarks
from server.competitions import model_shard_leases, scheduler, split_leases
from server.config import get_settings
from server.db import clock as database_clock
from server.db import now
from server.deps import get_database
from server.evaluations import lease_reaper
from server.metric_results import service as metric_results
from server.notifications import email_delivery, webhook_delivery
from server.queue import (
    COMPUTE_METRICS,
    DELIVER_WEBHOOKS,
    EVALUATE_SHARD,
    GROUP_TIES,
    PREPARE_SHARD,
    PREPARE_SPLIT,
    SCORE_EVALUATION,
    SEND_MAIL,
    SWEEP,
    send,
)
from server.rejudging import service
from server.submissions import baselines
from worker.app import app
from worker.context import get_context
from worker.evaluation import metrics_job, scoring_job, shard_pipeline, tie_groups
from worker.evaluation.shard_claimer import Claimant
from worker.host import graceful_shutdown, prometheus
from worker.host.debounce import Pace
from worker.host.worker_info import find_gpu, pool_slot
from worker.preparation import prepare_split_job, train_shard_job
from worker.preparation.preparation_slots import preparation_slot

log = structlog.get_logger()

MESSAGES_MAY_TAKE_S = 60  # what is not sent by then is sent at its next attempt


@lru_cache
def claimant() -> Claimant:
    """Return what claims for this process."""
    return Claimant(get_context())


@lru_cache
def sweeping() -> Pace:
    """Return how often this process looks for what was lost."""
    return Pace(get_settings().sweep_interval_s / 2)


@worker_process_init.connect
def _settle(**_: Any) -> None:
    """Give each process of the pool its own GPU, and no connection of the process that forked it."""
    get_database.cache_clear()
    if get_settings().worker_device == "cuda":
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as the device files are numbered
        os.environ["CUDA_VISIBLE_DEVICES"] = find_gpu(get_settings(), slot=pool_slot())


@worker_process_shutdown.connect
def _leave(**_: Any) -> None:
    """Close the sandboxes and say that this process takes nothing more."""
    if get_context.cache_info().currsize:
        claimant().stop()
        get_context().close()


@app.task(name=EVALUATE_SHARD)
def evaluate_shard() -> str:
    """Claim the fairest shard and run it. A message with nothing behind it costs one query."""
    context = get_context()
    shard = claimant().claim()
    prometheus.CLAIMS.labels("nothing" if shard is None else "shard").inc()
    if shard is None:
        return "nothing to do"
    with structlog.contextvars.bound_contextvars(
        request_id=shard.request_id,
        submission=shard.submission_id,
        shard=shard.shard_id,
        attempt=shard.attempt,
        runs=f"{shard.first_run}-{shard.first_run + shard.n_runs - 1}",
    ):
        log.info("shard claimed", kind=shard.kind.value)
        send(EVALUATE_SHARD, to=shard.routing_key)  # where there was one there may be more: an idle worker looks
        with (
            prometheus.SHARD_SECONDS.time(),
            telemetry.span("shard", submission=shard.submission_id, id=shard.shard_id),
        ):
            end = shard_pipeline.run_shard(context, shard)
        prometheus.SHARDS.labels(end).inc()
    send(EVALUATE_SHARD, to=shard.routing_key)  # whoever has worked looks for the next
    return end


@app.task(name=SCORE_EVALUATION)
def score_evaluation(evaluation_id: str) -> bool:
    """Score an evaluation whose runs are all done."""
    with prometheus.SCORE_SECONDS.time(), telemetry.span("score", evaluation=evaluation_id):
        recorded = scoring_job.score_evaluation(get_context(), evaluation_id)
    prometheus.SCORES.labels(recorded).inc()
    return recorded


@app.task(name=COMPUTE_METRICS)
def compute_metrics(evaluation_id: str) -> int:
    """Compute the metrics beside the score that an evaluation still lacks."""
    with telemetry.span("metrics", evaluation=evaluation_id):
        return metrics_job.compute_metrics(get_context(), evaluation_id)


@app.task(name=GROUP_TIES)
def group_ties(split_id: str) -> int:
    """Find which teams of a split's board the paired test does not tell apart."""
    return tie_groups.group_ties(get_context().database, split_id)


@app.task(name=PREPARE_SPLIT)
def prepare_split(split_id: str) -> bool:
    """Prepare a split, if a process of this host is free for it."""
    with preparation_slot(get_context()) as is_free:
        return is_free and prepare_split_job.prepare(get_context(), split_id)


@app.task(name=PREPARE_SHARD)
def prepare_shard() -> bool:
    """Claim the next shard of models and train it. Whoever has made one looks for the next."""
    with preparation_slot(get_context()) as is_free:
        made = is_free and not graceful_shutdown.is_asked() and train_shard_job.make_shard(get_context())
    if made:
        send(PREPARE_SHARD)
    return made


@app.task(name=SEND_MAIL, soft_time_limit=MESSAGES_MAY_TAKE_S)
def send_mail() -> int:
    """Send the e-mails that are due."""
    return email_delivery.send(get_context().database, get_settings(), at=now())


@app.task(name=DELIVER_WEBHOOKS, soft_time_limit=MESSAGES_MAY_TAKE_S)
def deliver_webhooks() -> int:
    """Send what webhooks are to be told."""
    return webhook_delivery.deliver(get_context().database, get_settings(), at=now())


@app.task(name=SWEEP)
def sweep_lost() -> None:
    """Find what was lost. Of sweeps that have piled up behind a long shard one is enough: scores wait behind them."""
    context = get_context()
    settings = context.settings
    if not sweeping().allows():
        return
    with context.database.write() as session:
        at = database_clock(session)
        resent_after = timedelta(seconds=2 * settings.sweep_interval_s)
        swept = lease_reaper.sweep(
            session, at, max_attempts=settings.max_attempts, lease_s=settings.lease_s, resent_after=resent_after
        )
        split_leases.sweep(session, at, max_attempts=settings.max_attempts)
        lost_splits = split_leases.forgotten(session, at)
        model_shard_leases.sweep(session, at, max_attempts=settings.max_attempts, resent_after=resent_after)
        lost_metrics = [
            *metric_results.lost(session, lease_s=settings.lease_s),
            *metric_results.recompute_outdated(session),
        ]
    for split_id in lost_splits:
        send(PREPARE_SPLIT, split_id)
    for evaluation_id in lost_metrics:
        send(COMPUTE_METRICS, evaluation_id)
    with context.database.write() as session:
        scheduler.tick(session, now())
        service.retry_host_faults(session, max_attempts=settings.max_attempts)
    baselines.submit_missing(context.database, context.storage, at=now())
    benchmarks.submit_missing(context.database, context.storage, at=now())
    if email_delivery.is_due(context.database, settings, at=now()):
        send(SEND_MAIL, expires_s=settings.sweep_interval_s)
    if webhook_delivery.is_due(context.database, at=now()):
        send(DELIVER_WEBHOOKS, expires_s=settings.sweep_interval_s)
    sweeping().rest()
    prometheus.LEASES_LOST.inc(swept.leases_lost)
    if swept.leases_lost or swept.scores_asked:
        log.warning("swept", leases_lost=swept.leases_lost, hints=swept.hints_sent, scores=swept.scores_asked)
