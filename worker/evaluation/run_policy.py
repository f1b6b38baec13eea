"""What one run of a competition may use."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lethe.competition.run_limits import RetrainingCost, run_limit
from lethe.competition.sections import Limits
from lethe.runtime.weights_layout import ORIGINAL_MODEL
from sandbox.launcher import EntryPoint
from sandbox.policy import RunPolicy
from server.config import Settings
from server.evaluations.claimed_shard import ClaimedShard
from server.models.evaluation import ShardKind
from worker.evaluation.notebook_runs import (
    is_notebook,
    is_program,
    notebook_policy,
    program_policy,
    reads_kaggle_folder,
    with_kaggle_folder,
)
from worker.host.gpu_sandbox import on_gpu
from worker.host.worker_info import find_gpu, pool_slot


def run_policy(limits: Limits, *, retraining: RetrainingCost, threads: int, libraries: str = "") -> RunPolicy:
    """Return the policy of one run: the competition's limits, its time as a share of one retraining."""
    limit = run_limit(limits, retraining)
    return RunPolicy(
        wall_time_s=limit.wall_time_s,
        idle_time_s=limits.run_idle_time_s,
        cpu_time_s=limit.cpu_time_s,
        memory_mib=limits.memory_mib,
        processes=limits.processes,
        scratch_mib=limits.scratch_mib,
        log_kib=limits.log_kib,
        threads=threads,
        libraries=libraries,
    )


def shard_policy(settings: Settings, shard: ClaimedShard, data_dir: Path) -> RunPolicy:
    """Return the policy of a shard's runs on this host. data_dir: what they are shown of the split."""
    policy = run_policy(
        shard.competition.limits,
        retraining=shard.retraining,
        threads=settings.worker_threads,
        libraries=shard.competition.submissions.libraries,
    )
    if settings.worker_device == "cuda":
        number = int(find_gpu(settings, slot=pool_slot()))
        policy = on_gpu(policy, shard.competition.limits, number=number)
    notebook = is_notebook(shard.entry_point)
    if notebook:
        policy = notebook_policy(
            policy,
            shard.competition,
            frame_bytes=(data_dir / ORIGINAL_MODEL).stat().st_size,
            sample=shard.kind is ShardKind.SMOKE,
        )
    elif is_program(shard.entry_point):
        frame_bytes = (data_dir / ORIGINAL_MODEL).stat().st_size
        policy = program_policy(policy, shard.competition, frame_bytes=frame_bytes)
    if reads_kaggle_folder(shard.entry_point):
        cache = settings.scratch / "notebook-data"
        policy = with_kaggle_folder(
            policy,
            data_dir,
            cache=cache,
            key=shard.manifest_sha256,
            competition=shard.competition,
            required=notebook or shard.entry_point.get("program") == "saves",
        )
    return policy


def entry_point(stored: Mapping[str, Any], *, sent_as: str = "") -> EntryPoint:
    """Return the sandbox's entry point for the one stored with the submission. sent_as: the upload's name."""
    return EntryPoint(
        file=stored["file"],
        function=stored["function"],
        style=stored["style"],
        keywords=tuple(stored["keywords"]),
        sent_as=sent_as,
        program=stored.get("program", ""),
    )
