"""The table of transitions, and what each state and moment allows."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from server.competitions import lifecycle
from server.errors import Conflict
from server.models.account import AuditEvent
from server.models.competition import Competition, CompetitionState
from server.models.registry import metadata

S = CompetitionState
OPENS = datetime(2030, 1, 1, tzinfo=UTC)
CLOSES = datetime(2030, 3, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def competition(state: S) -> Competition:
    return Competition(id="c", slug="digits", state=state.value, opens_at=OPENS, closes_at=CLOSES)


@pytest.mark.parametrize("start", list(S))
@pytest.mark.parametrize("to", list(S))
def test_only_the_transitions_of_the_table_happen(start: S, to: S) -> None:
    engine = create_engine("sqlite://")
    metadata.create_all(engine)
    session, moved = Session(engine, autoflush=False), competition(start)
    if to in lifecycle.TRANSITIONS[start]:
        lifecycle.move(session, moved, to, actor=None, reason="why")
        assert moved.state == to
        (event,) = session.new
        assert isinstance(event, AuditEvent)
        assert (event.actor, event.reason, event.data) == ("system", "why", {"from": start.value, "to": to.value})
    elif to == start:
        lifecycle.move(session, moved, to, actor=None)
        assert not session.new, "there is nothing to record"
    else:
        with pytest.raises(Conflict, match=f"is {start} and cannot become {to}"):
            lifecycle.move(session, moved, to, actor=None)
        assert moved.state == start
        assert not session.new
    session.close()
    engine.dispose()


def test_every_state_but_the_last_leads_on() -> None:
    assert [state for state in S if not lifecycle.TRANSITIONS[state]] == [S.ARCHIVED]
    reached, frontier = {S.DRAFT}, [S.DRAFT]
    while frontier:
        found = lifecycle.TRANSITIONS[frontier.pop()] - reached
        reached |= found
        frontier.extend(found)
    assert reached == set(S)


def test_private_scores_are_revealed_only_at_the_end() -> None:
    assert {state for state in S if lifecycle.is_revealed(competition(state))} == {S.FINAL, S.ARCHIVED}


@pytest.mark.parametrize(
    ("state", "at", "accepted"),
    [
        (S.OPEN, OPENS, True),
        (S.OPEN, OPENS - SECOND, False),
        (S.OPEN, CLOSES - SECOND, True),
        (S.OPEN, CLOSES, False),
        (S.READY, OPENS, True),
        (S.CLOSED, CLOSES - SECOND, True),
        (S.CLOSED, CLOSES, False),
        (S.PREPARING, OPENS, False),
        (S.PROVISIONAL, OPENS, False),
        (S.FINAL, OPENS, False),
    ],
)
def test_the_moment_of_receipt_decides(state: S, at: datetime, accepted: bool) -> None:
    assert lifecycle.accepts_submission(competition(state), at) is accepted


def test_nothing_is_accepted_once_the_finals_are_frozen() -> None:
    closed = competition(S.CLOSED)
    closed.frozen_at = CLOSES + SECOND
    assert not lifecycle.accepts_submission(closed, CLOSES - SECOND)
