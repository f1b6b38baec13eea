"""Thin tasks. A message says only that there is work; what work, the database says."""

import os
from functools import lru_cache
from typing import Any

import structlog
from celery.signals import worker_process_init, worker_process_shutdown

from server import telemetry
from server.admin import rejudging
from server.competitions import clock, model_shards, preparation
from server.config import get_settings
from server.db import clock as database_clock
from server.db import now
from server.deps import get_database
from server.evaluations import sweep
from server.notifications import delivering, mailing
from server.queue import (
    EVALUATE_SHARD,
    GROUP_TIES,
    PREPARE_SHARD,
    PREPARE_SPLIT,
    SCORE_EVALUATION,
    SEND_MAIL,
    SWEEP,
    TELL_WEBHOOKS,
    send,
)
from worker import drain, metrics, pipeline, preparing, preparing_shards, scoring_job, ties
from worker.app import app
from worker.claiming import Claimant
from worker.context import get_context
from worker.facts import gpu_of, pool_slot
from worker.pace import Pace

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
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu_of(get_settings(), slot=pool_slot())


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
    metrics.CLAIMS.labels("nothing" if shard is None else "shard").inc()
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
        with metrics.SHARD_SECONDS.time(), telemetry.span("shard", submission=shard.submission_id, id=shard.shard_id):
            end = pipeline.run_shard(context, shard)
        metrics.SHARDS.labels(end).inc()
    send(EVALUATE_SHARD, to=shard.audience)  # whoever has worked looks for the next
    return end


@app.task(name=SCORE_EVALUATION)
def score_evaluation(evaluation_id: str) -> bool:
    """Score an evaluation whose runs are all done."""
    with metrics.SCORE_SECONDS.time(), telemetry.span("score", evaluation=evaluation_id):
        recorded = scoring_job.score_evaluation(get_context(), evaluation_id)
    metrics.SCORES.labels(recorded).inc()
    return recorded


@app.task(name=GROUP_TIES)
def group_ties(split_id: str) -> int:
    """Find which teams of a split's board the paired test does not tell apart."""
    return ties.group_ties(get_context().database, split_id)


@app.task(name=PREPARE_SPLIT)
def prepare_split(split_id: str) -> bool:
    """Prepare a split."""
    return preparing.prepare(get_context(), split_id)


@app.task(name=PREPARE_SHARD)
def prepare_shard() -> bool:
    """Claim the next shard of models and train it. Whoever has made one looks for the next."""
    made = not drain.is_asked() and preparing_shards.make_shard(get_context())
    if made:
        send(PREPARE_SHARD)
    return made


@app.task(name=SEND_MAIL, soft_time_limit=MESSAGES_MAY_TAKE_S)
def send_mail() -> int:
    """Send the e-mails that are due."""
    return mailing.send(get_context().database, get_settings(), at=now())


@app.task(name=TELL_WEBHOOKS, soft_time_limit=MESSAGES_MAY_TAKE_S)
def tell_webhooks() -> int:
    """Send what webhooks are to be told."""
    return delivering.deliver(get_context().database, get_settings(), at=now())


@app.task(name=SWEEP)
def sweep_lost() -> None:
    """Find what was lost. Of sweeps that have piled up behind a long shard one is enough: scores wait behind them."""
    context = get_context()
    settings = context.settings
    if not sweeping().allows():
        return
    with context.database.write() as session:
        at = database_clock(session)
        swept = sweep.sweep(session, at, max_attempts=settings.max_attempts, lease_s=settings.lease_s)
        lost_splits = preparation.forgotten(session, at)
        model_shards.sweep(session, at, max_attempts=settings.max_attempts)
    for split_id in lost_splits:
        send(PREPARE_SPLIT, split_id)
    with context.database.write() as session:
        clock.tick(session, now())
        rejudging.retry_host_faults(session, max_attempts=settings.max_attempts)
    if mailing.is_due(context.database, settings, at=now()):
        send(SEND_MAIL, expires_s=settings.sweep_interval_s)
    if delivering.is_due(context.database, at=now()):
        send(TELL_WEBHOOKS, expires_s=settings.sweep_interval_s)
    sweeping().rest()
    metrics.LEASES_LOST.inc(swept.leases_lost)
    if swept.leases_lost or swept.scores_asked:
        log.warning("swept", leases_lost=swept.leases_lost, hints=swept.hints_sent, scores=swept.scores_asked)
