"""Two processes note the same thing of the upkeep at once, in an instance where nobody ever did."""

import threading

from server import last_times
from server.last_times import Upkeep

LOCK_WAIT_S = 0.5  # long enough that the other thread waits for the row


def test_two_may_note_the_first_time_at_once(both):
    failures, begun = [], threading.Event()

    def note_too():
        begun.set()
        try:
            with both.database.write() as session:
                last_times.note(session, Upkeep.BEAT)
        except Exception as error:
            failures.append(error)

    other = threading.Thread(target=note_too)
    with both.database.write() as session:
        last_times.note(session, Upkeep.BEAT)
        other.start()
        begun.wait()
        other.join(LOCK_WAIT_S)
    other.join()
    assert failures == []
    with both.database.read() as session:
        assert set(last_times.ages_s(session)) == {Upkeep.BEAT.value}


def test_a_later_note_has_a_later_time(both):
    for _ in range(2):
        with both.database.write() as session:
            last_times.note(session, Upkeep.SWEEP)
    with both.database.read() as session:
        assert 0 <= last_times.ages_s(session)["sweep"] < 60
