"""Collects from storage what nothing refers to."""

from datetime import datetime, timedelta

from server.db import Database, clock
from server.maintenance.repository import Garbage, find_garbage, is_referred_to
from server.storage import Storage


def collect(database: Database, storage: Storage, *, keep_hours: float, delete: bool) -> list[Garbage]:
    """Return what nothing refers to, and remove it if `delete` is set.

    A list of files is old when its last is removed: before each removal, rows and file are looked at again. Whoever
    stores a content writes it again, which makes it too young to be collected.
    """
    with database.read() as session:
        older_than = clock(session) - timedelta(hours=keep_hours)
        found = list(find_garbage(session, storage, older_than=older_than))
    if not delete:
        return found
    return [garbage for garbage in found if _remove(database, storage, garbage, older_than=older_than)]


def _remove(database: Database, storage: Storage, garbage: Garbage, *, older_than: datetime) -> bool:
    """Remove the file if it is garbage still. Return whether it was removed."""
    key = garbage.file.key
    with database.read() as session:
        if is_referred_to(session, key):
            return False
    written_at = storage.written_at(key)
    if written_at is None or written_at >= older_than:
        return False  # gone, or written again
    content = storage.read(key) if key.startswith("submissions/") else None
    storage.remove(key)
    return content is None or not _came_back(database, storage, key, content)


def _came_back(database: Database, storage: Storage, key: str, content: bytes) -> bool:
    """Write a content back if a submission of it was stored while it was removed. Return whether one was.

    One whose row commits later finds it gone and stores it again (`store_again_if_collected`).
    """
    with database.read() as session:
        if not is_referred_to(session, key):
            return False
    storage.write(key, content)
    return True
