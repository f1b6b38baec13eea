"""Preparations: one that fails or is cancelled stops all that belongs to it; whose may begin."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Column, Table, func, insert, select, update

from lethe.competition.section import SCHEMA_VERSION
from lethe.errors import NotFound
from server.admin.competition_edits import may_replace_file
from server.competitions import competitions, preparation_turns, split_leases
from server.competitions.preparation_turns import NEWER, NO_PROCESS, TIME_USED, PreparationTurns
from server.competitions.split_leases import SPLITS, SplitWork
from server.config import Settings
from server.db import UtcDateTime, clock, new_id, now
from server.models.account import Account, Role
from server.models.competition import Competition, CompetitionState, PreparationUse, Split
from server.models.evaluation import Shard
from server.models.registry import metadata
from server.models.worker import Worker
from server.queue import Turn
from tests.support.instance import Instance, competition_toml

PATH = "/api/v1/competitions/digits"


@pytest.fixture
def olga(both: Instance) -> Account:
    return both.account("olga", Role.ORGANISER)


@pytest.fixture
def headers(both: Instance, olga: Account) -> dict[str, str]:
    return both.headers(olga)


@pytest.fixture
def works(both: Instance, headers: dict[str, str]) -> list[SplitWork]:
    """A competition whose two splits are being prepared; the leases of both."""
    assert both.client.post("/api/v1/competitions", headers=headers, content=competition_toml()).status_code == 201
    assert both.client.post(f"{PATH}/prepare", headers=headers).status_code == 202
    with both.database.write() as session:
        ids = list(session.scalars(select(Split.id).order_by(Split.visibility)))
        found = [split_leases.claim(session, split_id, lease_s=60) for split_id in ids]
    return [work for work in found if work]


def states(server: Instance) -> set[tuple[str, str]]:
    with server.database.read() as session:
        return {(split.state, split.error) for split in session.scalars(select(Split))}


def beats(server: Instance, work: SplitWork) -> bool:
    with server.database.write() as session:
        return split_leases.heartbeat(session, work, lease_s=60, stage="training", progress=0.5)


def test_split_that_fails_stops_its_twin_and_unlocks_the_file(both, headers, works, olga):
    with both.database.write() as session:
        assert split_leases.fail(session, works[0], "no such column")
    assert states(both) == {
        ("failed", "no such column"),
        ("failed", "stopped, since the private split failed: no such column"),
    }
    assert not beats(both, works[1]), "who works on the twin goes on for nothing"
    with both.database.read() as session:
        competition = competitions.get(session, "digits", account=olga)
        assert may_replace_file(competition, list(competitions.splits(session, competition)))
    again = both.client.post(f"{PATH}/prepare", headers=headers)
    assert (again.status_code, states(both)) == (202, {("pending", "")})
    both.prepare_splits()
    assert both.state() == "ready"


def test_preparation_can_be_cancelled(both: Instance, headers: dict[str, str], works: list[SplitWork]) -> None:
    answer = both.client.post(f"{PATH}/cancel-preparation", headers=headers)
    assert (answer.status_code, answer.json()["state"]) == (200, "draft")
    assert not any(beats(both, work) for work in works)
    with both.database.write() as session:
        assert split_leases.claim(session, works[0].split_id, lease_s=60) is None, "nobody takes it up again"
    assert both.client.post(f"{PATH}/cancel-preparation", headers=headers).json()["state"] == "draft", "it is one"


def test_deleted_draft_leaves_nothing_but_its_row(both, headers, works, olga):
    assert both.client.delete(PATH, headers=headers).status_code == 409, "it is in preparation"
    both.client.post(f"{PATH}/cancel-preparation", headers=headers)
    assert both.client.delete(PATH, headers=headers).status_code == 204
    assert both.client.get(f"{PATH}/preparation", headers=headers).status_code == 404
    assert both.client.get("/api/v1/competitions", headers=headers).json() == []
    with both.database.read() as session:
        row = session.scalars(select(Competition)).one()
        assert (row.slug, row.source) == (f"deleted-{row.id}", "")
        assert "digits" not in row.config["title"].lower()
    again = both.client.post("/api/v1/competitions", headers=headers, content=competition_toml())
    assert again.status_code == 201, "the slug is free"
    reserved = both.client.post("/api/v1/competitions", headers=headers, content=competition_toml("deleted-x"))
    assert reserved.status_code == 422


# What a row holds that a constraint asks for; everything else is made up by its type.
CONSTRAINED: dict[str, Any] = {
    "visibility": "public",
    "participants.state": "asked",
    "rejudgings.state": "running",
    "splits.state": "pending",
    "worker_tokens.trust": "full",
}
STAY = {"competitions", "audit_events"}  # the log refers to the row for ever
OF_NO_DRAFT = {"submissions", "shards"}  # which nobody may send to one


def referring_to_competitions() -> dict[Table, Column[Any]]:
    return {
        table: key.parent
        for table in metadata.sorted_tables
        for key in table.foreign_keys
        if key.column.table.name == "competitions"
    }


def filled(table: Table, ids: dict[str, str]) -> dict[str, Any]:
    """Return a row of a table: what must be there, and the rows in `ids` that it may refer to."""
    row: dict[str, Any] = {}
    for column in table.c:
        target = next((key.column.table.name for key in column.foreign_keys), "")
        if target:
            row[column.name] = ids[target] if target in ids and column.name != "parent_id" else None
        elif f"{table.name}.{column.name}" in CONSTRAINED or column.name in CONSTRAINED:
            row[column.name] = CONSTRAINED.get(f"{table.name}.{column.name}", CONSTRAINED.get(column.name))
        elif not column.nullable and column.default is None and column.server_default is None:
            made_up = {int: 1, bool: False, dict: {}, bytes: b"x", float: 1.0}
            is_time = isinstance(column.type, UtcDateTime)
            row[column.name] = now() if is_time else made_up.get(column.type.python_type, new_id())
    return {name: value for name, value in row.items() if value is not None}


def test_deleted_draft_leaves_no_row_in_any_table_that_refers_to_it(server: Instance) -> None:
    olga = server.account("olga", Role.ORGANISER)
    draft = server.competition(organiser=olga, state=CompetitionState.DRAFT)
    kept = server.competition("kept", organiser=olga)
    tables = {t: c for t, c in referring_to_competitions().items() if t.name not in STAY | OF_NO_DRAFT}
    with server.database.write() as session:
        for competition in (draft, kept):
            ids = {"competitions": competition.id, "accounts": olga.id}
            for table, column in tables.items():
                found = session.execute(select(table).where(column == competition.id)).first()
                if found is None:
                    found = session.execute(insert(table).values(filled(table, ids)).returning(*table.c)).one()
                if "id" in table.c:
                    ids[table.name] = found._mapping["id"]
    assert server.client.delete(PATH, headers=server.headers(olga)).status_code == 204
    with server.database.read() as session:
        rows = {
            (table.name, slug): session.scalar(select(func.count()).where(column == competition.id))
            for table, column in tables.items()
            for slug, competition in (("draft", draft), ("kept", kept))
        }
    assert [key for key, count in rows.items() if bool(count) is (key[1] == "draft")] == []


def lose(server: Instance, work: SplitWork, *, later_s: float = 61) -> SplitWork | None:
    """Let the lease run out, sweep, and return what the next worker gets of the split."""
    with server.database.write() as session:
        SPLITS.sweep(session, clock(session) + timedelta(seconds=later_s), max_attempts=2)
    with server.database.write() as session:
        return split_leases.claim(session, work.split_id, lease_s=60)


def test_preparation_that_loses_each_worker_fails_in_the_end(both, headers, works):
    private = works[0]
    assert lose(both, private, later_s=0) is None, "its worker is not silent yet"
    again = lose(both, private)
    assert again is not None
    with both.database.write() as session:
        assert split_leases.heartbeat(session, again, lease_s=60, stage="training", progress=0.5)
        assert not split_leases.heartbeat(session, private, lease_s=60, stage="late", progress=0.9)
    assert lose(both, again) is None
    with both.database.read() as session:
        rows = {row.id: row for row in session.scalars(select(Split))}
    assert rows[private.split_id].state == "failed"
    told = "2 workers in a row were lost while they prepared this split (last at: training). Mostly the host's memory"
    assert rows[private.split_id].error.startswith(told)
    assert both.client.post(f"{PATH}/prepare", headers=headers).status_code == 202
    with both.database.write() as session:
        fresh = split_leases.claim(session, private.split_id, lease_s=60)
    assert fresh is not None
    assert lose(both, fresh) is not None, "asked for again, it has all its attempts"


def test_preparation_that_breaks_off_each_time_tells_why(both: Instance, works: list[SplitWork]) -> None:
    work: SplitWork | None = works[0]
    for _ in range(2):
        assert work is not None
        with both.database.write() as session:
            assert split_leases.note(session, work, "OSError: no space left on device")
        work = lose(both, work)
    assert work is None
    assert ("failed", "2 attempts failed, the last one so: OSError: no space left on device") in states(both)


def test_worker_that_stops_costs_a_preparation_no_attempt(both: Instance, works: list[SplitWork]) -> None:
    work: SplitWork | None = works[0]
    for _ in range(3):
        assert work is not None
        with both.database.write() as session:
            assert split_leases.hand_over(session, work)
        work = lose(both, work)


def test_draft_deleted_at_the_same_moment_is_not_prepared(both, headers, olga):
    assert both.client.post("/api/v1/competitions", headers=headers, content=competition_toml()).status_code == 201
    with both.database.read() as session:
        found = competitions.get(session, "digits", account=olga)  # as a request does that comes a moment before
    assert both.client.delete(PATH, headers=headers).status_code == 204
    with both.database.write() as session, pytest.raises(NotFound):
        competitions.prepare(session, found, actor=olga)


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


def test_organisers_share_the_processes_evenly() -> None:
    alone = frozenset({"a"})
    for values, admitted in (
        ({}, {"a", "b"}),
        ({"preparing": Counter(a=2)}, {"b"}),
        ({"organisers": alone, "preparing": Counter(a=3)}, {"a"}),
        ({"organisers": alone, "preparing": Counter(a=4)}, set()),
        ({"over_time": alone, "preparing": Counter(b=3)}, {"b"}),
    ):
        assert turns(**values).admitted == admitted, values
    assert turns(over_time=alone).why_not("a") == TIME_USED
    reason = turns(most=1, preparing=Counter(a=1), submissions_wait=True).why_not("b")
    assert reason == "waits: 1 of 1 processes for preparations are taken; submissions go first"
    assert len(NO_PROCESS.format(busy=999, most=999, because="; submissions go first")) <= 80, "the column's width"


@pytest.fixture
def eight(both: Instance) -> Instance:
    """An instance with eight processes."""
    with both.database.write() as session:
        session.add_all(Worker(name=f"h-{i}", device="cpu", memory_mib=1, versions={}) for i in range(8))
    return both


def test_waiting_submissions_leave_preparations_their_share(eight: Instance) -> None:
    def most() -> int:
        with eight.database.write() as session:
            return preparation_turns.find(session, SETTINGS).most

    assert most() == 8, "every process may prepare while nothing is open"
    eight.competition(state=CompetitionState.OPEN)
    assert most() == 7
    eight.submit(eight.participant())
    for turn, left in ((Turn.NEW, 2), (Turn.BASELINE, 7)):
        with eight.database.write() as session:
            session.execute(update(Shard).values(turn=turn.first))
        assert most() == left


def test_processor_time_of_the_day_is_summed_and_stops_the_next(eight: Instance) -> None:
    headers = eight.organiser() | {"Content-Type": "application/toml"}
    assert eight.client.post("/api/v1/competitions", content=competition_toml(), headers=headers).status_code == 201
    settings = Settings(preparation_hours_per_day=1.0)
    with eight.database.write() as session:
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


def test_preparation_of_a_newer_version_says_what_it_waits_for(eight: Instance) -> None:
    headers = {**eight.organiser(), "Content-Type": "application/toml"}
    eight.client.post("/api/v1/competitions", content=competition_toml(), headers=headers)
    eight.client.post("/api/v1/competitions/digits/prepare", headers=headers)
    with eight.database.write() as session:
        competition = session.scalars(select(Competition)).one()
        competition.config = {**competition.config, "schema_version": SCHEMA_VERSION + 1}
        session.flush()
        preparation_turns.tell(session, SETTINGS)
        assert set(session.scalars(select(Split.stage))) == {NEWER}
