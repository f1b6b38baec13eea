"""Thin tasks of every worker that need no torch: sweeps, and messages to people."""

import time
from datetime import timedelta
from functools import lru_cache
from typing import Any

import structlog
from celery.signals import worker_process_init

from server import last_times
from server.benchmarks import benchmarks
from server.competitions import model_shard_leases, preparation_turns, split_leases
from server.competitions.model_shard_leases import MODEL_SHARDS
from server.competitions.split_leases import SPLITS
from server.config import get_settings
from server.db import clock as database_clock
from server.db import now
from server.deps import get_database
from server.evaluations import lease_reaper
from server.evaluations.unserved import find_unserved, tell_organisers
from server.finals import finals
from server.jobs.leases import DELIVERIES, EMAILS
from server.last_times import Upkeep
from server.metric_results import metric_results
from server.notifications import email_delivery, outbox, webhooks
from server.queue import COMPUTE_METRICS, DELIVER_WEBHOOKS, PREPARE_SPLIT, SEND_MAIL, SWEEP, send
from server.rejudging import rejudgings
from server.storage import get_storage
from server.submissions import baselines
from server.workers import registration
from worker.app import app
from worker.host import prometheus

log = structlog.get_logger()

BEAT_NOTED_EVERY_S = 15.0
SEND_TIME_LIMIT_S = 60  # what is not sent by then is sent at its next attempt


class Throttle:
    """Of messages that ask for the same, only the first within `every_s` seconds is followed."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._began = self._next = float("-inf")

    def allows(self) -> bool:
        """Return whether the interval has passed; if so, start a new one."""
        at = time.monotonic()
        if at < self._next:
            return False
        self._began, self._next = at, at + self._every_s
        return True

    def rest(self) -> None:
        """Wait at least as long as the task took before the next one."""
        at = time.monotonic()
        self._next = max(self._next, at + (at - self._began))


@lru_cache
def sweeping() -> Throttle:
    """Return how often this process looks for what was lost."""
    return Throttle(get_settings().sweep_interval_s / 2)


@lru_cache
def beats() -> Throttle:
    """Return how often this process notes that the scheduler's process lives."""
    return Throttle(BEAT_NOTED_EVERY_S)


@worker_process_init.connect
def _forget_connections(**_: Any) -> None:
    """Use no connection of the process that forked this one."""
    get_database.cache_clear()


@app.task(name=SEND_MAIL, soft_time_limit=SEND_TIME_LIMIT_S)
def send_mail() -> int:
    """Send the e-mails that are due."""
    return email_delivery.send(get_database(), get_settings(), at=now())


@app.task(name=DELIVER_WEBHOOKS, soft_time_limit=SEND_TIME_LIMIT_S)
def deliver_webhooks() -> int:
    """Send the webhook deliveries that are due."""
    settings = get_settings()
    return webhooks.deliver(get_database(), settings, at=now(), allow_private=settings.webhooks_to_private)


@app.task(name=SWEEP)
def sweep_lost(*, by_beat: bool = False) -> None:
    """Find what was lost; of sweeps that have piled up one is enough. by_beat: asked by the scheduler's process."""
    settings, database, storage = get_settings(), get_database(), get_storage()
    if by_beat and beats().allows():
        with database.write() as session:
            last_times.note(session, Upkeep.BEAT)
    if not sweeping().allows():
        return
    with database.write() as session:
        at = database_clock(session)
        resent_after = timedelta(seconds=2 * settings.sweep_interval_s)
        attempts, lease_s = settings.max_attempts, settings.lease_s
        swept = lease_reaper.sweep(session, at, max_attempts=attempts, lease_s=lease_s, resent_after=resent_after)
        SPLITS.sweep(session, at, max_attempts=attempts, lease_s=lease_s)
        lost_splits = split_leases.forgotten(session, at)
        turns = preparation_turns.find(session, settings)
        MODEL_SHARDS.sweep(session, at, max_attempts=attempts, lease_s=lease_s)
        model_shard_leases.notify(session, at, resent_after=resent_after, submissions_wait=turns.submissions_wait)
        preparation_turns.tell(session, turns)
        registration.note_silent(session)
        for each in find_unserved(session):
            log.error("no worker can do this", competition=each.slug, shards=each.shards, reason=each.reason)
        tell_organisers(session)
        lost_metrics = [
            *metric_results.lost(session, lease_s=settings.lease_s),
            *metric_results.recompute_outdated(session),
        ]
    for split_id in lost_splits:
        send(PREPARE_SPLIT, split_id)
    for evaluation_id in lost_metrics:
        send(COMPUTE_METRICS, evaluation_id)
    with database.write() as session:
        finals.tick(session, database_clock(session))
        rejudgings.retry_host_faults(session, max_attempts=settings.max_attempts)
    baselines.submit_missing(database, storage, at=now())
    benchmarks.submit_missing(database, storage, at=now())
    if settings.smtp_host and outbox.is_due(database, EMAILS, at=now()):
        send(SEND_MAIL, expires_s=settings.sweep_interval_s)
    if outbox.is_due(database, DELIVERIES, at=now()):
        send(DELIVER_WEBHOOKS, expires_s=settings.sweep_interval_s)
    with database.write() as session:
        last_times.note(session, Upkeep.SWEEP)
    sweeping().rest()
    prometheus.LEASES_LOST.inc(swept.leases_lost)
    if swept.leases_lost or swept.scores_asked:
        log.warning("swept", leases_lost=swept.leases_lost, hints=swept.hints_sent, scores=swept.scores_asked)
