"""Whose preparation may begin: a share of the processes for either side, evenly between organisers, within the day."""

from collections import Counter
from datetime import UTC, datetime

import pytest
from sqlalchemy import select, update

from lethe.competition.section import SCHEMA_VERSION
from server.competitions import preparation_turns
from server.competitions.preparation_turns import NEWER, NO_PROCESS, TIME_USED, PreparationTurns
from server.config import Settings
from server.models.competition import Competition, CompetitionState, PreparationUse, Split
from server.models.evaluation import Shard
from server.models.worker import Worker
from server.queue import Turn
from tests.support.instance import Instance, competition_toml

SETTINGS = Settings(preparation_share=0.25)


def turns(**values: object) -> PreparationTurns:
    given = {
        "most": 4,
        "preparing": Counter(),
        "organisers": frozenset({"a", "b"}),
        "over_time": frozenset(),
        "submissions_wait": False,
    }
    return PreparationTurns(**(given | values))  # type: ignore[arg-type]


def test_free_processes_admit_every_organiser() -> None:
    assert turns().admitted == {"a", "b"}


def test_organiser_with_its_part_of_the_processes_waits_for_the_other() -> None:
    assert turns(preparing=Counter(a=2)).admitted == {"b"}


def test_only_organiser_may_use_all_processes() -> None:
    alone = frozenset({"a"})
    assert turns(organisers=alone, preparing=Counter(a=3)).admitted == {"a"}
    assert turns(organisers=alone, preparing=Counter(a=4)).admitted == set()


def test_organiser_who_used_the_day_takes_no_part() -> None:
    found = turns(over_time=frozenset({"a"}), preparing=Counter(b=3))
    assert found.admitted == {"b"}
    assert found.why_not("a") == TIME_USED


def test_reason_says_that_submissions_go_first() -> None:
    reason = turns(most=1, preparing=Counter(a=1), submissions_wait=True).why_not("b")
    assert reason == "waits: 1 of 1 processes for preparations are taken; submissions go first"
    assert len(NO_PROCESS.format(busy=999, most=999, because="; submissions go first")) <= 80, "the column's width"


@pytest.fixture
def server(both: Instance) -> Instance:
    """An instance with eight processes."""
    with both.database.write() as session:
        session.add_all(Worker(name=f"h-{i}", device="cpu", memory_mib=1, versions={}) for i in range(8))
    return both


def most(server: Instance) -> int:
    with server.database.write() as session:
        return preparation_turns.find(session, SETTINGS).most


def queue_a_shard(server: Instance, turn: Turn) -> None:
    server.competition(state=CompetitionState.OPEN)
    server.submit(server.participant())
    with server.database.write() as session:
        session.execute(update(Shard).values(turn=turn.first))


def test_every_process_may_prepare_while_nothing_is_open(server: Instance) -> None:
    assert most(server) == 8


def test_an_open_competition_keeps_one_process(server: Instance) -> None:
    server.competition(state=CompetitionState.OPEN)
    assert most(server) == 7


def test_waiting_submissions_leave_preparations_their_share(server: Instance) -> None:
    queue_a_shard(server, Turn.NEW)
    assert most(server) == 2


def test_waiting_baselines_do_not_count(server: Instance) -> None:
    queue_a_shard(server, Turn.BASELINE)
    assert most(server) == 7


def test_processor_time_of_the_day_is_summed_and_stops_the_next(server: Instance) -> None:
    headers = server.organiser() | {"Content-Type": "application/toml"}
    assert server.client.post("/api/v1/competitions", content=competition_toml(), headers=headers).status_code == 201
    settings = Settings(preparation_hours_per_day=1.0)
    with server.database.write() as session:
        split = session.scalars(select(Split)).first()
        assert split is not None
        organiser = preparation_turns.organiser_of(session, split.id)
        session.execute(update(Competition).values(state=CompetitionState.PREPARING.value))
        preparation_turns.note_use(session, split.id, 1800.0)
        assert not preparation_turns.find(session, settings).why_not(organiser)
        preparation_turns.note_use(session, split.id, 1800.0)
        assert preparation_turns.find(session, settings).why_not(organiser) == TIME_USED
        preparation_turns.tell(session, preparation_turns.find(session, settings))
        assert {each.stage for each in session.scalars(select(Split))} == {TIME_USED}
        session.execute(update(PreparationUse).values(day=datetime(2000, 1, 1, tzinfo=UTC).date()))
        assert not preparation_turns.find(session, settings).why_not(organiser), "a new day"
        preparation_turns.tell(session, preparation_turns.find(session, settings))
        assert {each.stage for each in session.scalars(select(Split))} == {""}


def test_preparation_of_a_newer_version_says_what_it_waits_for(server: Instance) -> None:
    headers = {**server.organiser(), "Content-Type": "application/toml"}
    server.client.post("/api/v1/competitions", content=competition_toml(), headers=headers)
    server.client.post("/api/v1/competitions/digits/prepare", headers=headers)
    with server.database.write() as session:
        competition = session.scalars(select(Competition)).one()
        competition.config = {**competition.config, "schema_version": SCHEMA_VERSION + 1}
        session.flush()
        preparation_turns.tell(session, SETTINGS)
        assert set(session.scalars(select(Split.stage))) == {NEWER}
