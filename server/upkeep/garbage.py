"""Collects from storage what nothing refers to."""

from datetime import timedelta

from server.db import Database, clock
from server.storage import Storage
from server.upkeep.repository import Garbage, find_garbage


def collect(database: Database, storage: Storage, *, keep_hours: float, delete: bool) -> list[Garbage]:
    """Return what nothing refers to, and remove it if `delete` is set.

    No transaction is open while files are removed. None is needed: whoever stores a content writes it anew, which
    makes it too young to be collected.
    """
    with database.read() as session:
        found = list(find_garbage(session, storage, older_than=clock(session) - timedelta(hours=keep_hours)))
    if delete:
        for garbage in found:
            storage.remove(garbage.file.key)
    return found
