"""What routes are given: sessions, the caller, and the right to be there."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.orm import Session

from server.admission import Admitted
from server.config import Settings, get_settings
from server.db import Database
from server.storage import Storage, get_storage


@lru_cache
def get_database() -> Database:
    """Return this process's database."""
    return Database(get_settings().resolved_database_url)


def get_session(request: Request, _: Admitted) -> Iterator[Session]:
    """Open a session for one request in its turn; a GET never writes, so it never waits for a writer."""
    database = get_database()
    if request.method in ("GET", "HEAD"):
        with database.read() as session:
            yield session
    else:
        with database.write() as session:
            yield session


async def this_database() -> Database:
    """Return this process's database, for routes that wait for turns themselves (`Admission.run`)."""
    return get_database()


async def admitted_database(_: Admitted) -> Database:
    """Return this process's database to a request that has its turn."""
    return get_database()


async def these_settings() -> Settings:
    """Return this process's settings, likewise."""
    return get_settings()


async def this_storage() -> Storage:
    """Return this process's storage, likewise."""
    return get_storage()


# scope="function": committed before the response leaves, so that what was acknowledged is stored.
SessionDep = Annotated[Session, Depends(get_session, scope="function")]
DatabaseDep = Annotated[Database, Depends(admitted_database)]
UnadmittedDatabase = Annotated[Database, Depends(this_database)]
SettingsDep = Annotated[Settings, Depends(these_settings)]
StorageDep = Annotated[Storage, Depends(this_storage)]
