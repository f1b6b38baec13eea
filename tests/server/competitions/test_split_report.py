"""A split's report and the share of its preparation, over HTTP."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from lethe.competition.file import CompetitionFile
from server.competitions.split_share import opening_of, share_done, time_left_s
from server.models.account import Role
from server.models.competition import CompetitionState, ModelShard, ModelShardState, Split, SplitState
from tests.lethe.conftest import competition
from tests.support.instance import Instance

REPORT = {
    "competition": "digits",
    "visibility": "private",
    "images": {"retain": 3, "forget": 1},
    "persons": {"retain": 2, "forget": 1},
    "classes": {"retain": {"0": 2, "1": 1}, "forget": {"0": 1, "1": 0}},
    "class_names": ["0", "1"],
    "confused_labels": 0,
    "pairs": [
        {
            "sets": ["retain", "forget"],
            "shared_images": 0,
            "shared_persons": 0,
            "exact_duplicates": 0,
            "near_duplicates": 1,
            "examples": [[4, 7, 0.997]],
        }
    ],
}

URL = "/api/v1/competitions/digits/splits/{}/report"


@pytest.mark.parametrize("place", ["report.json", "work/shared/report.json"])
def test_organisers_read_what_the_preparation_wrote(server: Instance, place: str) -> None:
    olga = server.headers(organiser := server.account("olga", Role.ORGANISER))
    server.competition(organiser=organiser)
    assert server.client.get(URL.format("private"), headers=olga).status_code == 404
    server.storage.write(f"splits/digits/private/{place}", json.dumps(REPORT).encode())
    assert server.client.get(URL.format("private"), headers=olga).json() == REPORT
    missing = server.client.get(URL.format("public"), headers=olga)
    assert "public split of digits has no report yet" in missing.json()["detail"]


def test_a_damaged_report_is_the_hosts_fault(server: Instance) -> None:
    olga = server.headers(organiser := server.account("olga", Role.ORGANISER))
    server.competition(organiser=organiser)
    server.storage.write("splits/digits/public/report.json", b"{")
    answer = server.client.get(URL.format("public"), headers=olga)
    assert (answer.status_code, answer.json()["title"]) == (503, "Platform failure")


AT = datetime(2026, 1, 1, tzinfo=UTC)


def shard(done: float, *, begun_s: float | None = None, state: ModelShardState = ModelShardState.LEASED) -> ModelShard:
    """Return a shard of ten models, begun so many seconds ago."""
    claimed_at = None if begun_s is None else AT - timedelta(seconds=begun_s)
    return ModelShard(kind="retrained", n_models=10, models_done=done, claimed_at=claimed_at, state=state.value)


def test_split_that_waits_has_nothing_done() -> None:
    file: CompetitionFile = competition()
    waits = Split(state=SplitState.PENDING.value, stage="waits: 1 of 1 processes for preparations are taken")
    assert share_done(waits, file, shards=[]) == 0.0
    begun = Split(state=SplitState.PREPARING.value, stage="drawing the sets", progress=0.0)
    assert 0.0 < share_done(begun, file, shards=[]) < 0.1


def test_time_left_is_of_the_rate_since_the_first_shard_began() -> None:
    shards = [shard(10, begun_s=20, state=ModelShardState.DONE), shard(5, begun_s=5), shard(0)]
    assert time_left_s(shards, AT) == pytest.approx(20.0)
    assert time_left_s([shard(0, begun_s=5), shard(0)], AT) is None, "nothing is made yet"
    assert time_left_s([], AT) is None


@pytest.mark.parametrize(("opens_with", "expected"), [("public", 1.0), ("both", 0.5)])
def test_opening_waits_for_the_splits_it_needs(server: Instance, opens_with: str, expected: float) -> None:
    made = server.competition(state=CompetitionState.PREPARING)
    with server.database.write() as session:
        held = session.merge(made)
        held.config = {**held.config, "splits": {**held.config["splits"], "opens_with": opens_with}}
        private = session.scalars(select(Split).where(Split.visibility == "private")).one()
        private.state = SplitState.PENDING.value
        session.flush()
        assert opening_of(session, held, AT).share == expected
