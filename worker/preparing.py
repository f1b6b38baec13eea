"""Preparing a split as a worker's job: lease, training, oracle score, the split marked ready."""

import hashlib
import threading

import structlog

from server.competitions import preparation
from server.competitions.preparation import PreparedSplit, SplitWork
from server.errors import AppError, HostFault
from server.evaluations.claims import split_key
from worker.context import WorkerContext
from worker.heart import Heart
from worker.local_splits import publish, workplace
from worker.results import model_outputs
from worker.scoring_job import ORACLE, RETRAINED, score_outputs, summary
from worker.splits.prepare import prepare_split
from worker.splits.workspace import Progress
from worker.starter_kit.build import store_kit

log = structlog.get_logger()


class _Reported:
    """The newest progress, passed from the training thread to the heartbeat's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stage, self._share = "starting", 0.0

    def set(self, progress: Progress) -> None:
        with self._lock:
            self._stage, self._share = progress.stage, progress.done / max(progress.total, 1)

    def get(self) -> tuple[str, float]:
        with self._lock:
            return self._stage, self._share


def prepare(context: WorkerContext, split_id: str) -> bool:
    """Prepare the split if nobody else does. Return False if there was nothing to do."""
    lease_s = context.settings.lease_s
    with context.database.write() as session:
        work = preparation.claim(session, split_id, lease_s=lease_s)
    if work is None:
        return False
    reported = _Reported()

    def beat() -> bool:
        stage, share = reported.get()
        with context.database.write() as session:
            return preparation.heartbeat(session, work, lease_s=lease_s, stage=stage, progress=share)

    try:
        with Heart(beat, every_s=min(context.settings.heartbeat_s, lease_s / 3)):
            prepared = _prepare(context, work, reported)
    except HostFault as error:  # ours: the lease runs out, and whoever sees that tries again
        log.warning("preparation broken off", split=split_id, error=error.detail)
        return True
    except AppError as error:  # the organiser's: the file asks for what the data cannot give
        log.warning("preparation failed", split=split_id, error=error.detail)
        with context.database.write() as session:
            preparation.fail(session, work, error.detail)
        return True
    with context.database.write() as session:
        preparation.finish(session, work, prepared)
    if work.visibility == "public":
        _store_kit(context, work, prepared)
    return True


def _store_kit(context: WorkerContext, work: SplitWork, prepared: PreparedSplit) -> None:
    """Make the starter kit. Nothing waits for it, and the competition does not need it to run."""
    folder = workplace(
        context.storage, split_key(work.competition.slug, work.visibility), scratch=context.settings.scratch
    )
    try:
        store_kit(
            context.storage,
            folder,
            work.competition,
            url=context.settings.public_url,
            retraining_time_s=prepared.retraining_time_s,
            device=context.settings.worker_device,
        )
    except (AppError, OSError, ValueError) as error:
        log.warning("no starter kit", competition=work.competition.slug, error=str(error))


def _prepare(context: WorkerContext, work: SplitWork, reported: _Reported) -> PreparedSplit:
    key = split_key(work.competition.slug, work.visibility)
    folder = workplace(context.storage, key, scratch=context.settings.scratch)
    manifest = prepare_split(
        work.competition,
        "public" if work.visibility == "public" else "private",
        folder,
        device=context.settings.worker_device,
        progress=reported.set,
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
