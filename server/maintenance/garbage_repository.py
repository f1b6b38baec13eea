"""Finds what lies in storage and nothing refers to: content of uploads that were refused, or cancelled before they ran,
results of lost attempts, old splits, deleted datasets.

Young files are left alone: content is stored before the row that names it is written.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from server.evaluations.results import has_outputs_of, is_weights, weights_key
from server.models.competition import Competition, Dataset, Split, SplitState
from server.models.evaluation import Shard, ShardState
from server.models.submission import Stage, Submission
from server.storage import Storage, StoredFile, content_key, dataset_key, split_key


@dataclass(frozen=True)
class Garbage:
    """One file that nothing refers to, and why it is thought so."""

    file: StoredFile
    reason: str


MANIFEST = "manifest.json"  # of a split
_FOLDERS = select(Competition.slug, Split.visibility, Split.version).join(Split, Split.competition_id == Competition.id)
_WAS_RUN = (Submission.stage != Stage.CANCELLED) | Submission.refunded.is_(False)


def find_garbage(session: Session, storage: Storage, *, older_than: datetime) -> Iterator[Garbage]:
    """Yield the files, last written before `older_than`, that no row refers to."""
    for prefix, reason, is_used in (
        ("submissions", "no submission that ran has this content", _contents(session).__contains__),
        ("evaluations", "not the result of the attempt that counts", _results(session).__contains__),
        ("splits", "of no competition there is", _Below(_splits(session))),
        ("datasets", "no dataset has this content", _datasets(session).__contains__),
    ):
        for file in storage.listed(prefix):
            if file.written_at < older_than and not is_used(file.key):
                yield Garbage(file, reason)


def is_referred_to(session: Session, key: str) -> bool:
    """Return whether a row refers to this one file now."""
    prefix, *parts = key.split("/")
    if prefix == "submissions":
        wanted = exists().where(Submission.content_sha256 == parts[-1], _WAS_RUN)
    elif prefix == "evaluations":
        wanted = exists().where(has_outputs_of(key) if is_weights(key) else Shard.result_key == key)
    elif prefix == "datasets":
        wanted = exists().where(Dataset.sha256 == parts[-1], Dataset.deleted_at.is_(None))
    else:
        return "/".join((prefix, *parts[:2])) in _splits(session, slug=parts[0])
    return bool(session.scalar(select(wanted)))


def named_files(session: Session) -> dict[str, str]:
    """Return the files that rows name and that must be there, each with the SHA-256 that its row says it has."""
    own = Competition.archive_key.is_(None)
    contents = select(Submission.content_sha256).join(Competition, Competition.id == Submission.competition_id)
    results = select(Shard.result_key, Shard.result_sha256).join(Competition, Competition.id == Shard.competition_id)
    done = Shard.state == ShardState.DONE.value, Shard.result_key.is_not(None)
    ready = _FOLDERS.add_columns(Split.manifest_sha256).where(Split.state == SplitState.READY.value)
    datasets = select(Dataset.sha256).where(Dataset.deleted_at.is_(None)).distinct()
    return {
        **{content_key(sha256): sha256 for sha256 in session.scalars(contents.where(own, _WAS_RUN))},
        **{str(key): str(sha256) for key, sha256 in session.execute(results.where(own, *done))},
        **{dataset_key(sha256): sha256 for sha256 in session.scalars(datasets)},
        **{
            f"{split_key(slug, visibility, version)}/{MANIFEST}": str(sha256)
            for slug, visibility, version, sha256 in session.execute(ready.where(own))
        },
    }


def damaged_results(session: Session, keys: Collection[str]) -> dict[str, list[tuple[int, str]]]:
    """Return the shards, each with its result's hash, whose results lie under these keys, by their evaluations."""
    damaged: dict[str, list[tuple[int, str]]] = {}
    named = select(Shard.evaluation_id, Shard.id, Shard.result_sha256).where(Shard.result_key.in_(keys))
    for evaluation_id, shard_id, sha256 in session.execute(named):
        damaged.setdefault(evaluation_id, []).append((shard_id, sha256 or ""))
    return damaged


class _Below:
    """Whether a key lies below one of some folders."""

    def __init__(self, folders: set[str]) -> None:
        self._folders = folders

    def __call__(self, key: str) -> bool:
        return "/".join(key.split("/")[:3]) in self._folders


def _contents(session: Session) -> set[str]:
    """Return the contents to keep: all but those of submissions that were cancelled before they ran."""
    wanted = select(Submission.content_sha256).where(_WAS_RUN).distinct()
    return {content_key(sha256) for sha256 in session.scalars(wanted)}


def _results(session: Session) -> set[str]:
    """Return the outputs that count, and where the weights that belong to them may lie."""
    keys = session.scalars(select(Shard.result_key).where(Shard.result_key.is_not(None)))
    return {name for key in keys if key for name in (key, weights_key(key))}


def _datasets(session: Session) -> set[str]:
    kept = select(Dataset.sha256).where(Dataset.deleted_at.is_(None)).distinct()
    return {dataset_key(sha256) for sha256 in session.scalars(kept)}


def _splits(session: Session, *, slug: str | None = None) -> set[str]:
    rows = session.execute(_FOLDERS if slug is None else _FOLDERS.where(Competition.slug == slug))
    return {split_key(slug, visibility, version) for slug, visibility, version in rows}
