"""Preparing a split as a worker's job: lease, training, oracle score, the split marked ready.

A long training is divided: this job then ends when all but the many models is made, and comes back when they are.
"""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import structlog
import torch
from sqlalchemy.orm import Session

from lethe.benchmark.cell_metrics import reference_scores
from lethe.competition.file import CompetitionFile
from lethe.competition.preparation_share import ShardToMake
from lethe.competition.run_limits import RetrainingCost
from lethe.competition.visibility import Visibility
from lethe.data.datasets.registry import datasets_below
from lethe.data.files import read_json, write_text
from lethe.device import memory_given_back
from lethe.errors import AppError, HostFault
from lethe.evaluation.manifest import MANIFEST, Manifest
from lethe.evaluation.model_outputs import OUTPUT_PATHS
from lethe.evaluation.ranking import ORACLE, score_outputs, secret_attack_seed
from lethe.evaluation.shard_outputs import model_outputs
from lethe.preparation.file_check import data_difference
from lethe.preparation.prepare import begin_split, finish_split, make_split
from lethe.preparation.public_sample import SampleModels, retrain_on_sample
from lethe.preparation.step_cache import WORK, OnProgress, PreparationProgress, library_versions, maker, read_timing
from server.competitions import model_shard_leases, preparation_turns, split_leases
from server.competitions.model_shard_leases import ShardWork
from server.competitions.preparation_turns import PreparationTurns
from server.competitions.split_leases import PreparedSplit, SplitWork
from server.config import Settings
from server.datasets import datasets
from server.datasets.datasets import archive_limits
from server.models.competition import Split
from server.parsing.client import run_on_file
from server.storage import dataset_key, split_key
from server.workers import registration
from worker import source_networks
from worker.context import WorkerContext
from worker.evaluation.scoring_job import oracle_as_data, require_ranking
from worker.host.stage_folder import own_folder
from worker.jobs import Job, run_job
from worker.preparation.quotas import watched
from worker.preparation.retraining_time import measure_retraining_cost
from worker.preparation.split_sync import SplitExchange
from worker.preparation.starter_kit.build import store_kit
from worker.split_storage.local_splits import publish_files, publish_manifest

MEASURED = f"{WORK}/retraining.json"  # what `measure_meanwhile` found
log = structlog.get_logger()


@contextmanager
def uploaded_datasets(context: WorkerContext, competition: CompetitionFile) -> Iterator[Mapping[str, Path]]:
    """Yield name and folder of the competition's uploaded dataset. Raises InvalidCompetitionFile, HostFault."""
    with context.database.read() as session:
        dataset = datasets.find_for_competition(session, competition)
    if dataset is None:
        yield {}
        return
    with tempfile.TemporaryDirectory(dir=own_folder(context.settings.scratch / "datasets")) as made:
        folder = Path(made)
        archive = folder / "archive"
        context.storage.download(dataset_key(dataset.sha256), archive)
        (folder / "files").mkdir()
        with archive.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != dataset.sha256:
                raise HostFault(f"storage gave a damaged dataset {dataset.name}")
            limits = archive_limits(context.settings)
            run_on_file("unpack_dataset", file, folder=str(folder / "files"), limits=limits)
        archive.unlink()
        yield {dataset.name: folder / "files"}


def prepare(context: WorkerContext, split_id: str) -> bool:
    """Prepare the split if nobody else does. Return False if there was nothing to do."""
    settings = context.settings
    with context.database.write() as session:
        turns = present_turns(context, session)
        if turns is None or turns.why_not(preparation_turns.organiser_of(session, split_id)):
            return False
        split = session.get_one(Split, split_id)
        if split.versions and split.prepared_at is None and not model_shard_leases.fits(context.facts, split):
            return False  # it would throw the models away and make them all again
        work = split_leases.claim(session, split_id, lease_s=settings.lease_s, device=settings.worker_device)
    if work is None:
        return False
    exchange = open_split_exchange(context, work)
    end = run_job(SplitJob(context, work, exchange))
    log.info("preparation ended", split=split_id, end=end)
    if end == "done" and not work.is_divided:
        measure_meanwhile(context, work, exchange)
    return True


def measure_meanwhile(context: WorkerContext, work: SplitWork, exchange: SplitExchange) -> None:
    """Measure one retraining and make the starter kit of a public split while others train its models.

    Whoever finishes the split finds what was measured, or measures it where this came to nothing; and finds the kit, or
    makes it where this has not, or the file has changed.
    """
    folder = exchange.folder

    def is_wanted() -> bool:
        with context.database.read() as session:
            return split_leases.waits_for_models(session, work)

    if work.visibility != Visibility.PUBLIC or not work.is_current or work.retraining is not None or not is_wanted():
        return

    def tell(*, kit_of: str) -> bool:
        if not is_wanted():
            return False
        write_text(folder / MEASURED, json.dumps({"cost": asdict(cost), "kit_of": kit_of}))
        exchange.push(lambda name: name == MEASURED)
        return True

    try:
        cost = measure_retraining_cost(context.settings, folder, work.competition, read_timing(folder))
        # First the cost: whoever finishes while this makes the kit makes one with the same limits.
        if tell(kit_of="") and _store_kit(context, work, folder, retraining=cost):
            tell(kit_of=work.competition.model_dump_json())
    except (AppError, OSError, ValueError) as error:
        log.warning("retraining not measured", split=work.split_id, error=str(error))


def finish_public(context: WorkerContext) -> bool:
    """Finish a public split whose models are all made, before anybody makes those of a private one."""
    with context.database.read() as session:
        waiting = split_leases.public_splits_to_finish(session, device=context.settings.worker_device)
    return any(prepare(context, split_id) for split_id in waiting)  # of one or the other it may not be the turn


def present_turns(context: WorkerContext, session: Session) -> PreparationTurns | None:
    """Return whose preparations this worker may go on with now, None if its host is cordoned."""
    if registration.reason(session, context.facts.name):
        return None
    return preparation_turns.find(session, context.settings)


@dataclass(frozen=True)
class _Made:
    """A split whose files are made, and which its manifest makes a prepared one."""

    prepared: PreparedSplit
    manifest: Manifest


@dataclass(frozen=True)
class SplitJob(Job[_Made | list[ShardToMake]]):
    """The preparation of a split. What is wrong with its competition's file ends it."""

    context: WorkerContext
    work: SplitWork
    exchange: SplitExchange

    def run(self) -> _Made | list[ShardToMake]:
        """Make the complete split, or what comes before its models and a list of shards for others to make."""
        context, work, exchange = self.context, self.work, self.exchange
        with (
            watched(context.settings, self._beat, folder=exchange.folder) as tell,
            uploaded_datasets(context, work.competition) as uploads,
            datasets_below(context.settings.dataset_folders, uploads=uploads),
        ):
            shards = [] if work.is_divided else _begin(context, work, exchange, tell)
            return shards or _prepare(context, work, exchange, tell)

    def on_done(self, result: _Made | list[ShardToMake]) -> bool:
        """Write down what was made. The manifest is written while the row is locked and this worker's: one whose lease
        ran out, and who comes back after another has finished, changes nothing of the ready split."""
        device = self.context.settings.worker_device
        with self.context.database.write() as session:
            if isinstance(result, list):
                versions = library_versions()
                return model_shard_leases.divide(session, self.work, result, device=device, versions=versions)
            if not split_leases.finish(session, self.work, result.prepared):
                return False
            finish_split(result.manifest, self.exchange.folder)
            publish_manifest(self.context.storage, self.exchange.key, self.exchange.folder)
        self.exchange.clear()
        return True

    def on_failed(self, error: AppError) -> bool:
        log.warning("preparation failed", split=self.work.split_id, error=error.detail)
        return self._step(lambda session: split_leases.fail(session, self.work, error.detail))

    def give_back(self, reason: str) -> bool:
        """Say why; the lease runs out, and whoever sees that tries again."""
        log.warning("preparation broken off", split=self.work.split_id, error=reason)
        return self._step(lambda session: split_leases.note(session, self.work, reason))

    def hand_over(self) -> bool:
        return self._step(lambda session: split_leases.hand_over(session, self.work))

    def _step(self, step: Callable[[Session], bool]) -> bool:
        return self.context.database.retrying(step)

    def _beat(self, progress: PreparationProgress, cpu_time_s: float) -> bool:
        share, lease_s = progress.done / max(progress.total, 1), self.context.settings.lease_s
        with self.context.database.write() as session:
            preparation_turns.note_use(session, self.work.split_id, cpu_time_s)
            return split_leases.heartbeat(session, self.work, lease_s=lease_s, stage=progress.stage, progress=share)


def _store_kit(context: WorkerContext, work: SplitWork, folder: Path, *, retraining: RetrainingCost) -> bool:
    """Make the starter kit, before the split counts as prepared: who may submit finds it. It may fail alone: False."""
    try:
        with memory_given_back(torch.device(context.settings.worker_device)):
            store_kit(
                context.storage,
                folder,
                work.competition,
                url=context.settings.public_url,
                retraining=retraining,
                retrain=lambda: _sample_models(context.settings, folder, work.competition),
            )
    except (AppError, OSError, ValueError) as error:
        log.warning("no starter kit", competition=work.competition.slug, error=str(error))
        return False
    return True


def _sample_models(settings: Settings, split_dir: Path, competition: CompetitionFile) -> SampleModels:
    if source_networks.is_source_file(competition):
        return source_networks.retrain_on_sample(settings, split_dir, competition)
    return retrain_on_sample(split_dir / "sample", competition, device=settings.worker_device)


def open_split_exchange(context: WorkerContext, work: SplitWork | ShardWork) -> SplitExchange:
    """Return the way to what other hosts make of the same split."""
    key = split_key(work.competition.slug, work.visibility, work.version)
    return SplitExchange(context.storage, key, context.settings.scratch)


def _begin(context: WorkerContext, work: SplitWork, exchange: SplitExchange, tell: OnProgress) -> list[ShardToMake]:
    """Make what comes before the many models. Return the shards that others may make, none if this worker should."""
    visibility, device = Visibility(work.visibility), context.settings.worker_device
    exchange.begin(maker(work.competition, visibility, device=device))
    exchange.fetch_published()
    exchange.fetch_all()
    if source_networks.is_source_file(work.competition):
        return []  # one process that is closed off makes all of it
    shards = begin_split(work.competition, visibility, exchange.folder, device=device, progress=tell)
    if shards:
        exchange.push_all()
    return shards


def _prepare(context: WorkerContext, work: SplitWork, exchange: SplitExchange, tell: OnProgress) -> _Made:
    """Make what is missing, score the oracle and publish the files."""
    if work.is_divided:
        exchange.fetch_all()
    key, folder = exchange.key, exchange.folder
    visibility, device = Visibility(work.visibility), context.settings.worker_device
    was_prepared = (folder / MANIFEST).is_file()
    if source_networks.is_source_file(work.competition):
        manifest = source_networks.make_split(context.settings, work.competition, visibility, folder, progress=tell)
    else:
        manifest = make_split(work.competition, visibility, folder, device=device, progress=tell)
    retrained = model_outputs(folder / OUTPUT_PATHS["retrained"])
    seed = secret_attack_seed(work.competition, visibility, ORACLE)
    oracle = score_outputs(
        model_outputs(folder / OUTPUT_PATHS["oracle"]), retrained, scoring=work.competition.scoring, attack_seed=seed
    )
    require_ranking(work.competition, folder, manifest, oracle=oracle, attack_seed=seed)
    levels = work.competition.report.capture_levels
    publish_files(context.storage, key, folder, manifest.files)
    difference = data_difference(work.competition, visibility, folder) if was_prepared else ""
    cost, has_kit = work.retraining, False
    if cost is None and (folder / MEASURED).is_file():
        measured = read_json(folder / MEASURED)
        cost, has_kit = RetrainingCost(**measured["cost"]), measured["kit_of"] == work.competition.model_dump_json()
    elif cost is None or work.measures_again:  # what was measured once for a competition stays
        tell(PreparationProgress("measuring one retraining in the sandbox", 0, 1))
        cost = measure_retraining_cost(context.settings, folder, work.competition, manifest.timing, before=cost)
    prepared = PreparedSplit(
        manifest_sha256=hashlib.sha256(manifest.text().encode()).hexdigest(),
        n_forget=int(retrained.confidences.shape[1]),
        retraining_time_s=cost.time_s,
        retraining_cpu_s=cost.cpu_s,
        start_cpu_s=cost.start_cpu_s if cost.cpu_s is not None else None,
        device=device,
        versions=manifest.versions,
        data_difference=difference,
        doubt=cost.doubt,
        oracle=oracle_as_data(oracle, work.competition.ranking)
        | ({"references": reference_scores(folder, work.competition)} if levels else {}),
    )
    if work.visibility == "public" and work.is_current and not has_kit:
        _store_kit(context, work, folder, retraining=prepared.retraining)
    return _Made(prepared, manifest)
