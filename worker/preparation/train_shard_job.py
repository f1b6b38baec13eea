"""Making one shard of a split's models as a worker's job. Any worker of the split's kind takes the next one."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from lethe.data.errors import InvalidSplit
from lethe.errors import AppError
from lethe.evaluation.model_outputs import OUTPUT_PATHS, Kind
from lethe.preparation.model_shards import STAGES
from lethe.preparation.prepare import prepare_shard
from lethe.preparation.step_cache import OnProgress, PreparationProgress
from server.competitions import model_shard_leases, preparation_turns
from server.competitions.model_shard_leases import ShardWork
from worker.context import WorkerContext
from worker.jobs import Job, run_job
from worker.preparation.prepare_split_job import open_split_exchange, present_turns
from worker.preparation.quotas import watched
from worker.preparation.split_sync import SplitExchange
from worker.source_networks import is_source_file

log = structlog.get_logger()
KINDS: dict[str, Kind] = {kind: kind for kind in OUTPUT_PATHS}
PUSH_EVERY_S = 60.0  # how much training the loss of a host may cost, where others reach its work through storage only


def make_shard(context: WorkerContext) -> bool:
    """Make the first shard that waits for a worker like this one. Return False if none does."""
    with context.database.write() as session:
        turns = present_turns(context, session)
        if turns is None:
            return False
        work = model_shard_leases.claim(
            session,
            context.facts,
            lease_s=context.settings.lease_s,
            competitions=context.settings.competitions_served,
            organisers=turns.admitted,
            submissions_wait=turns.submissions_wait,
        )
    if work is None:
        return False
    with structlog.contextvars.bound_contextvars(split=work.split_id, models=_named(work), attempt=work.attempt):
        end = run_job(ModelShardJob(context, work))
        log.info("shard of models ended", end=end)
    return True


@dataclass(frozen=True)
class ModelShardJob(Job[None]):
    """One shard of a split's models. What is wrong with its competition's file ends the preparation."""

    context: WorkerContext
    work: ShardWork

    def run(self) -> None:
        exchange = open_split_exchange(self.context, self.work)
        with watched(self.context.settings, self._beat, folder=exchange.folder) as tell:
            _make(self.context, self.work, exchange, tell)

    def on_done(self, result: None) -> bool:
        return self._step(lambda session: model_shard_leases.close(session, self.work))

    def on_failed(self, error: AppError) -> bool:
        log.warning("preparation failed", error=error.detail)
        return self._step(lambda session: model_shard_leases.fail(session, self.work, error.detail))

    def give_back(self, reason: str) -> bool:
        log.warning("shard of models broken off", error=reason)
        limit = self.context.settings.max_attempts
        return self._step(
            lambda session: model_shard_leases.give_back(session, self.work, reason=reason, max_attempts=limit)
        )

    def hand_over(self) -> bool:
        return self._step(lambda session: model_shard_leases.hand_over(session, self.work))

    def _step(self, step: Callable[[Session], bool]) -> bool:
        return self.context.database.retrying(step)

    def _beat(self, progress: PreparationProgress, cpu_time_s: float) -> bool:
        work = self.work
        training = progress.stage == STAGES[KINDS[work.shard.kind]]
        done = max(progress.done - work.shard.first_model, 0.0) if training else 0.0
        with self.context.database.write() as session:
            preparation_turns.note_use(session, work.split_id, cpu_time_s)
            return model_shard_leases.heartbeat(session, work, lease_s=self.context.settings.lease_s, models_done=done)


def _make(context: WorkerContext, work: ShardWork, exchange: SplitExchange, tell: OnProgress) -> None:
    if is_source_file(work.competition):
        raise InvalidSplit("[network]: a network given as Python text is prepared by one worker: prepare it once more")
    exchange.fetch_for(work.shard)
    prepare_shard(
        work.competition,
        Visibility(work.visibility),
        exchange.folder,
        kind=KINDS[work.shard.kind],
        shard=work.shard.position,
        device=context.settings.worker_device,
        progress=_pushing(exchange, work, tell),
    )
    exchange.push_shard(work.shard)


def _pushing(exchange: SplitExchange, work: ShardWork, tell: OnProgress) -> OnProgress:
    """Return what tells the progress, and now and then gives others the models in training."""
    pushed_at = time.monotonic()

    def progress(made: PreparationProgress) -> None:
        nonlocal pushed_at
        tell(made)
        if time.monotonic() - pushed_at >= PUSH_EVERY_S:
            exchange.push_shard(work.shard)
            pushed_at = time.monotonic()

    return progress


def _named(work: ShardWork) -> str:
    shard = work.shard
    return f"{shard.kind} {shard.first_model}-{shard.first_model + shard.n_models - 1}"
