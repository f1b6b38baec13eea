"""What one worker process keeps between shards: sandboxes that are warm, splits that are loaded."""

import os
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import structlog

from lethe.evaluation.evaluators import Evaluator, load_evaluator
from lethe.networks.builders import TRUST_SOURCE, limit_parameters
from sandbox.launcher import Launcher, Sandbox, SandboxSpec
from sandbox.policy import RunPolicy
from server.config import Settings, get_settings
from server.db import Database
from server.deps import get_database
from server.models.worker import WorkerFacts
from server.storage import Storage, get_storage
from worker.host import prometheus
from worker.host.backoff import Cooling, DevicePace
from worker.host.stage_folder import own_folder
from worker.host.worker_info import required_controls, worker_facts
from worker.source_networks import ConfinedEvaluator, has_source
from worker.split_storage.local_splits import Artefacts, StoredArtefacts
from worker.split_storage.split_cache import SplitCache
from worker.transport import DatabaseTransport, Leases

log = structlog.get_logger()
WARM_SANDBOXES = 2
WARM_SPLITS = 2
SHOWN = "shown"  # the key in local storage below which nothing is kept


@dataclass(kw_only=True)
class RunningContext:
    """What one process runs shards with. The least recently used sandbox is closed."""

    settings: Settings
    facts: WorkerFacts
    leases: Leases
    artefacts: Artefacts
    cache: SplitCache
    cooling: Cooling = field(default_factory=Cooling)
    pace: DevicePace = field(init=False)
    _sandboxes: OrderedDict[tuple[Path, RunPolicy], Sandbox] = field(default_factory=OrderedDict)
    _evaluators: OrderedDict[tuple[Path, str], Evaluator] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        """Whatever this process was started with: no network's source runs in it, and none takes all memory."""
        os.environ.pop(TRUST_SOURCE, None)
        limit_parameters(self.settings.max_parameters)
        self.pace = DevicePace(self.settings.worker_device)

    @property
    def name(self) -> str:
        return self.facts.name

    @property
    def stage_dir(self) -> Path:
        """The folder in which this process unpacks submissions."""
        return own_folder(self.settings.scratch / "stage")

    @property
    def neutral_dirs(self) -> tuple[Path, ...]:
        """Where the data of sandboxes may lie under names that reveal nothing to runs."""
        return (self.settings.scratch / "shown",)

    def sandbox(self, data_dir: Path, policy: RunPolicy) -> Sandbox:
        """Return a warm sandbox on `data_dir`, starting one if there is none."""
        key = (data_dir, policy)
        kept = self._sandboxes.pop(key, None)
        if kept is None:
            alike = [each for each in self._sandboxes if _template_kind(each[1]) == _template_kind(policy)]
            for each in alike:  # the new one starts from its template, a hundred times as fast as with one of its own
                self._sandboxes.pop(each).close()
            while len(self._sandboxes) >= WARM_SANDBOXES:
                self._sandboxes.popitem(last=False)[1].close()
            self.stage_dir.mkdir(parents=True, exist_ok=True)
            spec = SandboxSpec(
                data_dir=data_dir,
                stage_dir=self.stage_dir,
                policy=policy,
                backend=self.settings.sandbox_backend,
                production=self.settings.environment == "production",
                library_sets=self.settings.library_sets,
                required_controls=required_controls(self.settings),
                neutral_dirs=self.neutral_dirs,
            )
            with prometheus.SANDBOX_START_SECONDS.time():
                kept = Launcher(spec).start()
        self._sandboxes[key] = kept
        return kept

    def drop_sandbox(self, data_dir: Path, policy: RunPolicy) -> None:
        """Close a sandbox that cannot be trusted to serve another run."""
        kept = self._sandboxes.pop((data_dir, policy), None)
        if kept is not None:
            kept.close()

    def evaluator(self, split_dir: Path, manifest_sha256: str) -> Evaluator:
        """Return the loaded split, keeping the two last used."""
        key = (split_dir, manifest_sha256)
        kept = self._evaluators.pop(key, None) or self._load_evaluator(split_dir)
        self._evaluators[key] = kept
        while len(self._evaluators) > WARM_SPLITS:
            _let_go(self._evaluators.popitem(last=False)[1])
        return kept

    def _load_evaluator(self, split_dir: Path) -> Evaluator:
        if has_source(split_dir):
            return ConfinedEvaluator(self.settings, split_dir)
        return load_evaluator(split_dir, self.settings.worker_device)

    def close(self) -> None:
        while self._sandboxes:
            self._sandboxes.popitem()[1].close()
        while self._evaluators:
            _let_go(self._evaluators.popitem()[1])
        self.cache.close()


def _template_kind(policy: RunPolicy) -> tuple[object, ...]:
    """Return what of a policy the template of its sandbox depends on: one living sandbox of each kind is kept."""
    return policy.libraries, policy.devices, policy.threads, tuple(mount.target for mount in policy.mounts)


def _let_go(evaluator: Evaluator) -> None:
    if isinstance(evaluator, ConfinedEvaluator):
        evaluator.close()


@dataclass(kw_only=True)
class WorkerContext(RunningContext):
    """The tools of a process of the instance's own, which also scores and prepares."""

    transport: DatabaseTransport
    database: Database
    storage: Storage

    @property
    def neutral_dirs(self) -> tuple[Path, ...]:
        """Also beside local storage, whose file system may be another than that of the scratch folder."""
        beside = (self.storage.local_folder(SHOWN),) if self.storage.is_local else ()
        return (*super().neutral_dirs, *beside)


@lru_cache
def get_context() -> WorkerContext:
    """Return this process's context, made at the first shard and so after the worker has forked."""
    settings, database, storage = get_settings(), get_database(), get_storage()
    cache = SplitCache(settings.scratch / "splits", cap_bytes=settings.cache_mib * 2**20)
    facts = worker_facts(settings)
    transport = DatabaseTransport(database, storage, settings, facts)
    return WorkerContext(
        settings=settings,
        facts=facts,
        leases=transport,
        transport=transport,
        artefacts=StoredArtefacts(storage, cache),
        cache=cache,
        database=database,
        storage=storage,
    )
