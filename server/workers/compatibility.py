"""Whether a worker fits a split, and if not, why: scores are only comparable if every run was made alike."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from lethe.competition.stored_document import SCHEMA_VERSION
from server.competitions.stored_file import unreadable
from server.worker_facts import WorkerFacts, libraries_fact, minor_version
from server.workers import repository
from server.workers.repository import ReadySplit

SERVES_OTHERS = "this worker serves other competitions (LETHE_WORKER_COMPETITIONS)"


@dataclass(frozen=True)
class Fitting:
    """The splits that a worker may serve, and why it may not serve the others."""

    splits: tuple[str, ...]
    refusals: dict[str, str] = field(default_factory=dict)


def fitting(
    session: Session,
    facts: WorkerFacts,
    *,
    competitions: Sequence[str] | None = None,
    public_only: bool = False,
    trusted: bool = True,
    says_all: bool = False,
) -> Fitting:
    """Compare a worker with every prepared split, of some competitions only if those are given.

    says_all: those of the others are refused, too.
    """
    refusals: dict[str, str] = {}
    splits: list[str] = []
    looked_at = None if says_all else competitions
    for split in repository.ready_splits(session, looked_at, public_only=public_only):
        if competitions is not None and split.slug not in competitions:
            refusals[split.split_id] = SERVES_OTHERS
            continue
        reason = _of_another_version(split) or refusal(facts, split)
        if split.trusted_only and not trusted:
            reason = f"{split.slug} takes trusted workers only (trusted_only in its file)"
        if reason is None:
            splits.append(split.split_id)
        else:
            refusals[split.split_id] = reason
    return Fitting(tuple(splits), refusals)


def _of_another_version(split: ReadySplit) -> str | None:
    if (split.schema_version or 0) > SCHEMA_VERSION:
        return f"{split.slug} was made by a newer version of Lethe than this worker's: update the worker"
    return unreadable.get(split.slug)


def refusal(facts: WorkerFacts, split: ReadySplit) -> str | None:
    """Return why the worker may not serve the split, or None if it may."""
    name = f"The {split.visibility} split of {split.slug}"
    if split.device is not None and facts.device != split.device:
        return f"{name} was prepared on {split.device}, this worker computes on {facts.device}: they round differently"
    if facts.memory_mib < split.memory_mib:
        return f"{name} allows a run {split.memory_mib} MiB of memory, this worker has {facts.memory_mib} MiB for one"
    if facts.isolates_runs and facts.device == "cuda" and split.isolation == "shard":
        return f"{name} lets a shard's runs share a process, which this worker's LETHE_SANDBOX_REQUIRED refuses"
    if split.libraries and libraries_fact(split.libraries) not in facts.versions:
        return (
            f"{name} runs code with the libraries of {split.libraries}, which this worker does not have: "
            f"lethe libraries install {split.libraries}"
        )
    prepared, installed = split.versions.get("torch"), facts.versions.get("torch")
    wanted = minor_version(prepared)
    if prepared is not None and wanted != minor_version(installed):
        return f"{name} was prepared with torch {prepared}, this worker has {installed}: install {wanted}"
    return None
