"""Finds what lies in storage and nothing refers to: content of refused uploads, results of lost attempts, old splits.

Young files are left alone: content is stored before the row that names it is written.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.evaluations.claims import split_key
from server.models.competition import Competition, Split
from server.models.evaluation import Shard
from server.models.submission import Submission
from server.storage import Storage, StoredFile, content_key


@dataclass(frozen=True)
class Garbage:
    """One file that nothing refers to, and why it is thought so."""

    file: StoredFile
    reason: str


def find_garbage(session: Session, storage: Storage, *, older_than: datetime) -> Iterator[Garbage]:
    """Yield the files, last written before `older_than`, that no row refers to."""
    for prefix, reason, is_used in (
        ("submissions", "no submission has this content", _contents(session).__contains__),
        ("evaluations", "not the result of the attempt that counts", _results(session).__contains__),
        ("splits", "of no competition there is", _Below(_splits(session))),
    ):
        for file in storage.listed(prefix):
            if file.written_at < older_than and not is_used(file.key):
                yield Garbage(file, reason)


class _Below:
    """Whether a key lies below one of some folders."""

    def __init__(self, folders: set[str]) -> None:
        self._folders = folders

    def __call__(self, key: str) -> bool:
        return "/".join(key.split("/")[:3]) in self._folders


def _contents(session: Session) -> set[str]:
    return {content_key(sha256) for sha256 in session.scalars(select(Submission.content_sha256).distinct())}


def _results(session: Session) -> set[str]:
    return {key for key in session.scalars(select(Shard.result_key).where(Shard.result_key.is_not(None))) if key}


def _splits(session: Session) -> set[str]:
    rows = session.execute(
        select(Competition.slug, Split.visibility).join(Split, Split.competition_id == Competition.id)
    )
    return {split_key(slug, visibility) for slug, visibility in rows}
