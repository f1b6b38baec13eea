"""When upkeep was last done is noted by many processes."""

import time
from concurrent.futures import ThreadPoolExecutor

from server import last_times
from server.db import Database
from server.last_times import Upkeep


def test_two_processes_note_the_first_time_at_once(migrated_postgres_url: str) -> None:
    database = Database(migrated_postgres_url)

    def note() -> None:
        with database.write() as session:
            last_times.note(session, Upkeep.BEAT)

    with ThreadPoolExecutor(1) as pool:
        with database.write() as session:
            last_times.note(session, Upkeep.BEAT)
            second = pool.submit(note)
            time.sleep(1)
        second.result(60)
    with database.read() as session:
        assert last_times.ages_s(session)["beat"] < 60
    database.dispose()
