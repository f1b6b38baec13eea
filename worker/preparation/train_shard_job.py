"""Making one shard of a split's models as a worker's job. Any worker of the split's kind takes the next one."""

import time

import structlog

from lethe.competition.visibility import Visibility
from lethe.data.errors import InvalidSplit
from lethe.errors import AppError, HostFault
from lethe.evaluation.model_outputs import OUTPUT_PATHS, Kind
from lethe.preparation.model_shards import STAGES
from lethe.preparation.prepare import prepare_shard
from lethe.preparation.step_cache import OnProgress, PreparationProgress
from server.competitions import model_shard_leases, preparation_turns
from server.competitions.model_shard_leases import ShardWork
from server.workers import cordons
from worker.context import WorkerContext
from worker.preparation.failure_reason import get_reason
from worker.preparation.lease_guard import LeaseLost, WorkerStops, watched
from worker.preparation.prepare_split_job import open_split_exchange
from worker.preparation.split_sync import SplitExchange
from worker.source_networks import is_source_file

log = structlog.get_logger()
KINDS: dict[str, Kind] = {kind: kind for kind in OUTPUT_PATHS}
PUSH_EVERY_S = 60.0  # how much training the loss of a host may cost, where others reach its work through storage only


def make_shard(context: WorkerContext) -> bool:
    """Make the first shard that waits for a worker like this one. Return False if none does."""
    served = context.settings.competitions_served
    with context.database.write() as session:
        if cordons.reason(session, context.facts.name):
            return False
        turns = preparation_turns.find(session, context.settings)
        work = model_shard_leases.claim(
            session,
            context.facts,
            lease_s=context.settings.lease_s,
            competitions=served,
            organisers=turns.admitted,
            submissions_wait=turns.submissions_wait,
        )
    if work is None:
        return False
    with structlog.contextvars.bound_contextvars(split=work.split_id, models=_named(work), attempt=work.attempt):
        end = _run(context, work)
        log.info("shard of models ended", end=end)
    return True


def _run(context: WorkerContext, work: ShardWork) -> str:
    """Make the shard and store how that ended. Return its name for the log."""
    limit = context.settings.max_attempts

    def beat(progress: PreparationProgress, cpu_time_s: float) -> bool:
        training = progress.stage == STAGES[KINDS[work.shard.kind]]
        done = max(progress.done - work.shard.first_model, 0.0) if training else 0.0
        with context.database.write() as session:
            preparation_turns.note_use(session, work.split_id, cpu_time_s)
            return model_shard_leases.heartbeat(session, work, lease_s=context.settings.lease_s, models_done=done)

    try:
        folder = open_split_exchange(context, work).folder
        with watched(context.settings, beat, folder=folder) as tell:
            _make(context, work, tell)
    except LeaseLost:
        return "lost"
    except WorkerStops:
        context.database.retrying(lambda session: model_shard_leases.hand_over(session, work))
        return "handed-over"
    except HostFault as error:
        reason = error.detail
        log.warning("shard of models broken off", error=reason)
        context.database.retrying(
            lambda session: model_shard_leases.give_back(session, work, reason=reason, max_attempts=limit)
        )
        return "given-back"
    except AppError as error:  # the organiser's: a model that did not learn
        detail = error.detail
        log.warning("preparation failed", error=detail)
        context.database.retrying(lambda session: model_shard_leases.fail(session, work, detail))
        return "failed"
    except Exception as error:
        reason = get_reason(error)
        context.database.retrying(
            lambda session: model_shard_leases.give_back(session, work, reason=reason, max_attempts=limit)
        )
        raise
    closed = context.database.retrying(lambda session: model_shard_leases.close(session, work))
    return "done" if closed else "lost"


def _make(context: WorkerContext, work: ShardWork, tell: OnProgress) -> None:
    if is_source_file(work.competition):
        raise InvalidSplit("[network]: a network given as Python text is prepared by one worker: prepare it once more")
    exchange = open_split_exchange(context, work)
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
