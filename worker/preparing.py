"""Preparing a split as a worker's job: lease, training, oracle score, the split marked ready.

A long training is divided: this job then ends when all but the many models is made, and comes back when they are.
"""

import hashlib

import structlog
import torch

from server.competitions import model_shards, preparation
from server.competitions.config_file import CompetitionFile
from server.competitions.model_shards import ShardToMake
from server.competitions.preparation import PreparedSplit, SplitWork
from server.errors import AppError, HostFault
from server.evaluations.claims import split_key
from worker.context import WorkerContext
from worker.local_splits import publish
from worker.results import model_outputs
from worker.scoring_job import ORACLE, RETRAINED, score_outputs, summary
from worker.split_exchange import SplitExchange
from worker.splits.cut import Visibility
from worker.splits.description import library_versions, maker
from worker.splits.device_memory import memory_given_back
from worker.splits.prepare import begin_split, prepare_split
from worker.splits.workspace import OnProgress, Progress
from worker.starter_kit.build import store_kit
from worker.watched import LeaseLost, WorkerStops, watched

log = structlog.get_logger()


def prepare(context: WorkerContext, split_id: str) -> bool:
    """Prepare the split if nobody else does. Return False if there was nothing to do."""
    settings = context.settings
    with context.database.write() as session:
        work = preparation.claim(session, split_id, lease_s=settings.lease_s, device=settings.worker_device)
    if work is None:
        return False
    exchange = exchange_of(context, work.competition, work.visibility)
    try:
        made = _make(context, work, exchange)
    except LeaseLost:
        log.warning("preparation lost", split=split_id)
    except WorkerStops:
        with context.database.write() as session:
            preparation.hand_over(session, work)
    except HostFault as error:  # ours: the lease runs out, and whoever sees that tries again
        log.warning("preparation broken off", split=split_id, error=error.detail)
        _note(context, work, error.detail)
    except AppError as error:  # the organiser's: the file asks for what the data cannot give
        log.warning("preparation failed", split=split_id, error=error.detail)
        with context.database.write() as session:
            preparation.fail(session, work, error.detail)
    except Exception as error:
        _note(context, work, f"{type(error).__name__}: {error}")
        raise
    else:
        _store(context, work, exchange, made)
    return True


def _note(context: WorkerContext, work: SplitWork, reason: str) -> None:
    with context.database.write() as session:
        preparation.note(session, work, f"attempt {work.attempt} was broken off and will be made again: {reason}")


def _make(context: WorkerContext, work: SplitWork, exchange: SplitExchange) -> PreparedSplit | list[ShardToMake]:
    """Make the whole split, or what comes before its models and a list of shards for others to make."""

    def beat(progress: Progress) -> bool:
        share = progress.done / max(progress.total, 1)
        with context.database.write() as session:
            return preparation.heartbeat(
                session, work, lease_s=context.settings.lease_s, stage=progress.stage, progress=share
            )

    with watched(context.settings, beat) as tell:
        shards = [] if work.is_divided else _begin(context, work, exchange, tell)
        return shards or _prepare(context, work, exchange, tell)


def _store(
    context: WorkerContext, work: SplitWork, exchange: SplitExchange, made: PreparedSplit | list[ShardToMake]
) -> None:
    device = context.settings.worker_device
    with context.database.write() as session:
        if isinstance(made, list):
            model_shards.divide(session, work, made, device=device, versions=library_versions())
            return
        preparation.finish(session, work, made)
    exchange.clear()
    if work.visibility == "public":
        _store_kit(context, work, made)


def _store_kit(context: WorkerContext, work: SplitWork, prepared: PreparedSplit) -> None:
    """Make the starter kit. Nothing waits for it, and the competition does not need it to run."""
    exchange = exchange_of(context, work.competition, work.visibility)
    try:
        with memory_given_back(torch.device(context.settings.worker_device)):
            store_kit(
                context.storage,
                exchange.folder,
                work.competition,
                url=context.settings.public_url,
                retraining_time_s=prepared.retraining_time_s,
                device=context.settings.worker_device,
            )
    except (AppError, OSError, ValueError) as error:
        log.warning("no starter kit", competition=work.competition.slug, error=str(error))


def exchange_of(context: WorkerContext, competition: CompetitionFile, visibility: str) -> SplitExchange:
    """Return the way to what other hosts make of the same split."""
    return SplitExchange(context.storage, split_key(competition.slug, visibility), context.settings.scratch)


def _begin(context: WorkerContext, work: SplitWork, exchange: SplitExchange, tell: OnProgress) -> list[ShardToMake]:
    """Make what comes before the many models. Return the shards that others may make, none if this worker should."""
    visibility, device = visibility_of(work.visibility), context.settings.worker_device
    exchange.begin(maker(work.competition, visibility, device=device))
    exchange.fetch_published()
    exchange.fetch_all()
    shards = begin_split(work.competition, visibility, exchange.folder, device=device, progress=tell)
    if shards:
        exchange.push_all()
    return shards


def visibility_of(word: str) -> Visibility:
    return "public" if word == "public" else "private"


def _prepare(context: WorkerContext, work: SplitWork, exchange: SplitExchange, tell: OnProgress) -> PreparedSplit:
    """Make what is missing, score the oracle and publish the split."""
    if work.is_divided:
        exchange.fetch_all()
    key, folder = exchange.key, exchange.folder
    manifest = prepare_split(
        work.competition,
        visibility_of(work.visibility),
        folder,
        device=context.settings.worker_device,
        progress=tell,
    )
    retrained = model_outputs(folder / RETRAINED)
    oracle = score_outputs(model_outputs(folder / ORACLE), retrained, metric=work.competition.metric)
    low, high = oracle.interval or (None, None)
    publish(context.storage, key, folder)
    return PreparedSplit(
        manifest_sha256=hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest(),
        n_forget=int(retrained.confidences.shape[1]),
        retraining_time_s=manifest.retraining_time_s,
        device=context.settings.worker_device,
        versions=manifest.versions,
        oracle={
            "final_score": oracle.headline,
            "forgetting_quality": oracle.forgetting_quality,
            "retain_ratio": oracle.retain_ratio,
            "test_ratio": oracle.test_ratio,
            "interval_low": low,
            "interval_high": high,
        }
        | summary(oracle),
    )
