"""A preparation in shards: leased to any worker that fits, done once each, ended by the first that fails for good."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from lethe.competition.preparation_share import ShardToMake
from server import queue
from server.competitions import model_shard_leases, split_leases
from server.competitions import stalled_preparations as waiting
from server.competitions.model_shard_leases import MODEL_SHARDS, ShardWork
from server.competitions.split_leases import SPLITS, PreparedSplit, SplitWork
from server.db import clock, database_time, now
from server.models.competition import Competition, ModelShard, ModelShardState, Split, SplitState
from server.models.worker import Worker, WorkerFacts, WorkerState
from server.web.organiser.checklist import checklist
from tests.support.instance import Instance, competition_toml

SHARDS = [ShardToMake("retrained", 0, 0, 2), ShardToMake("retrained", 1, 2, 1), ShardToMake("oracle", 0, 0, 2)]
PREPARED = PreparedSplit(manifest_sha256="0" * 64, n_forget=3, retraining_time_s=1.0, oracle={"final_score": 0.5})
VERSIONS = {"torch": "2.11.0+cpu"}


def facts(name: str = "w1", *, device: str = "cpu", torch: str = "2.11.1") -> WorkerFacts:
    return WorkerFacts(name=name, device=device, memory_mib=1024, versions={"torch": torch})


@pytest.fixture
def olga(both: Instance) -> dict[str, str]:
    headers = both.organiser()
    toml = {**headers, "Content-Type": "application/toml"}
    assert both.client.post("/api/v1/competitions", content=competition_toml(), headers=toml).status_code == 201
    both.client.post("/api/v1/competitions/digits/prepare", headers=headers)
    return headers


def split_of(server: Instance, visibility: str, *, device: str = "cpu") -> SplitWork | None:
    """Ask for the preparation of a split."""
    with server.database.write() as session:
        split_id = session.scalars(select(Split.id).where(Split.visibility == visibility)).one()
        return split_leases.claim(session, split_id, lease_s=60, device=device)


def taken(server: Instance, visibility: str, *, device: str = "cpu") -> SplitWork:
    work = split_of(server, visibility, device=device)
    assert work is not None
    return work


def divide(server: Instance, visibility: str) -> SplitWork:
    work = taken(server, visibility)
    assert not work.is_divided
    with server.database.write() as session:
        assert model_shard_leases.divide(session, work, SHARDS, device="cpu", versions=VERSIONS)
    return work


def finish(server: Instance, work: SplitWork, **values: Any) -> bool:
    with server.database.write() as session:
        return split_leases.finish(session, work, replace(PREPARED, **values))


@pytest.fixture
def divided(both: Instance, olga: dict[str, str]) -> SplitWork:
    """The public split, divided into three shards."""
    return divide(both, "public")


def claim(server: Instance, who: WorkerFacts | None = None, *, lease_s: float = 60) -> ShardWork | None:
    with server.database.write() as session:
        return model_shard_leases.claim(session, who or facts(), lease_s=lease_s)


def test_host_that_failed_at_a_shard_leaves_it_to_another_for_a_minute(both: Instance, divided: SplitWork) -> None:
    work = claim(both, facts("near-1"))
    assert work is not None
    with both.database.write() as session:
        assert model_shard_leases.give_back(session, work, reason="no disk", max_attempts=3)
        for name in ("near-1", "far-1"):
            session.add(Worker(name=name, device="cpu", memory_mib=1024, versions=VERSIONS))
    near, far = claim(both, facts("near-2")), claim(both, facts("far-1"))
    assert (near and near.shard_id, far and far.shard_id) == (work.shard_id + 1, work.shard_id)
    assert divided.split_id == work.split_id
    with both.database.write() as session:
        model_shard_leases.give_back(session, far or work, reason="no disk", max_attempts=3)
        session.execute(update(Worker).values(state=WorkerState.DRAINING.value))
    again = claim(both, facts("far-2"))
    assert again is not None, "nobody else is there"
    assert again.shard_id == work.shard_id


def claimed(server: Instance, **options: float) -> ShardWork:
    work = claim(server, **options)
    assert work is not None
    return work


def get_split(server: Instance, work: SplitWork) -> Split:
    with server.database.read() as session:
        return session.get_one(Split, work.split_id)


def states(server: Instance) -> list[str]:
    with server.database.read() as session:
        return list(session.scalars(select(ModelShard.state).order_by(ModelShard.id)))


def sweep(server: Instance, *, later_s: float = 0.0, max_attempts: int = 3) -> int:
    with server.database.write() as session:
        at = clock(session) + timedelta(seconds=later_s)
        lost = MODEL_SHARDS.sweep(session, at, max_attempts=max_attempts)
        model_shard_leases.notify(session, at)
        return lost


def test_every_shard_is_claimed_once_in_order(both: Instance, divided: SplitWork) -> None:
    works = [claim(both, facts(f"w{number}")) for number in range(4)]
    assert [work.shard if work else None for work in works] == [*SHARDS, None]
    assert {work.visibility for work in works if work} == {divided.visibility}


def test_split_is_finished_once_after_its_shards(both: Instance, divided: SplitWork) -> None:
    def forgotten() -> bool:
        with both.database.read() as session:
            return divided.split_id in split_leases.forgotten(session, clock(session))

    for _ in SHARDS:
        assert split_of(both, "public") is None
        assert not forgotten()
        work = claimed(both)
        with both.database.write() as session:
            assert model_shard_leases.close(session, work)
            assert not model_shard_leases.close(session, work)
    assert forgotten()
    with queue.client().connection_for_read() as connection:
        waiting = connection.default_channel.client.lrange("lethe.prepare", 0, -1)
    assert sum(divided.split_id.encode() in message for message in waiting) == 2  # to begin, and to end
    finishing = taken(both, "public")
    assert finishing.is_divided
    assert split_of(both, "public") is None
    assert finish(both, finishing)


def test_progress_is_shown_for_each_shard_and_for_all(both: Instance, divided: SplitWork, olga: dict[str, str]) -> None:
    first, second = claimed(both), claimed(both)
    with both.database.write() as session:
        assert model_shard_leases.heartbeat(session, first, lease_s=60, models_done=1.5)
        assert model_shard_leases.close(session, second)
    shown = both.client.get("/api/v1/competitions/digits/preparation", headers=olga).json()["splits"]
    public = next(split for split in shown if split["visibility"] == divided.visibility)
    assert public["stage"] == "training 5 models in 3 parts"
    assert public["progress"] == pytest.approx(2.5 / 5)
    assert [(shard["state"], shard["models_done"]) for shard in public["shards"]] == [
        ("leased", 1.5),
        ("done", 1.0),
        ("queued", 0.0),
    ]


def claimed_in(session: object) -> ShardWork:
    work = model_shard_leases.claim(session, facts(), lease_s=60)  # type: ignore[arg-type]
    assert work is not None
    return work


def test_silent_workers_shard_goes_to_another_worker(both: Instance, divided: SplitWork) -> None:
    assert divided
    silent = claimed(both)
    assert sweep(both) == 0
    assert sweep(both, later_s=61) == 1
    again = claimed(both)
    assert (again.shard, again.attempt, again.failed_attempts) == (silent.shard, 2, 1)
    with both.database.write() as session:
        assert not model_shard_leases.heartbeat(session, silent, lease_s=60, models_done=1)
        assert not model_shard_leases.close(session, silent)
        assert not model_shard_leases.fail(session, silent, "too late")
        assert model_shard_leases.close(session, again)


def test_clock_set_back_does_not_extend_leases_of_preparations(both: Instance, divided: SplitWork) -> None:
    shard, split = claimed(both), taken(both, "private")
    with both.database.write() as session:
        hour_later = database_time(3660)  # as seen after the clock went back by an hour
        session.execute(update(ModelShard).where(ModelShard.id == shard.shard_id).values(lease_expires_at=hour_later))
        session.execute(update(Split).where(Split.id == split.split_id).values(lease_expires_at=hour_later))
    with both.database.write() as session:
        at = clock(session)
        for jobs in (MODEL_SHARDS, SPLITS):
            assert jobs.sweep(session, at, max_attempts=3, lease_s=60) == 0
            assert jobs.sweep(session, at + timedelta(seconds=61), max_attempts=3, lease_s=60) == 1


def test_last_failed_attempt_fails_the_preparation_with_reason(both: Instance, divided: SplitWork) -> None:
    claimed(both)
    claimed(both)
    assert sweep(both, later_s=61, max_attempts=1) >= 1
    split = get_split(both, divided)
    assert split.state == SplitState.FAILED
    assert "retrained models 0 to 1: 1 attempts failed, the last one so: no heartbeat from w1" in split.error
    assert set(states(both)) == {ModelShardState.FAILED, ModelShardState.CANCELLED}


def test_a_host_that_cannot_make_a_shard_gives_it_back(both: Instance, divided: SplitWork) -> None:
    with both.database.write() as session:
        assert model_shard_leases.hand_over(session, claimed_in(session))
    for failed in range(2):
        work = claimed(both)
        assert (work.shard, work.failed_attempts) == (SHARDS[0], failed), "a worker that stops costs no attempt"
        with both.database.write() as session:
            assert model_shard_leases.give_back(session, work, reason="disk full", max_attempts=2)
    assert "2 attempts failed, the last one so: disk full" in get_split(both, divided).error


def test_untrained_model_ends_all_shards_and_allows_a_retry(both, divided, olga):
    other, work = claimed(both), claimed(both)
    with both.database.write() as session:
        assert model_shard_leases.fail(session, work, "retrained model 2 reaches 0.1")
        assert not model_shard_leases.heartbeat(session, other, lease_s=60, models_done=1)
    split = get_split(both, divided)
    assert (split.state, split.error) == (SplitState.FAILED, "retrained model 2 reaches 0.1")
    assert states(both) == [ModelShardState.CANCELLED, ModelShardState.FAILED, ModelShardState.CANCELLED]
    again = both.client.post("/api/v1/competitions/digits/prepare", headers=olga).json()
    assert [split["shards"] for split in again["splits"]] == [[], []]
    assert not taken(both, "public").is_divided


def test_untaken_shards_name_the_kind_of_worker_needed(both: Instance, divided: SplitWork) -> None:
    assert claim(both, facts(device="cuda")) is None
    sweep(both, later_s=30)
    assert get_split(both, divided).stage == "training 5 models in 3 parts"
    sweep(both, later_s=61)
    assert get_split(both, divided).stage == "no cpu, torch 2.11 worker comes: start one, or prepare --any-device"
    claimed(both, lease_s=600)
    sweep(both, later_s=61)
    assert get_split(both, divided).stage == "training 5 models in 3 parts"


def test_shards_wait_for_workers_that_are_at_another_split(both: Instance, divided: SplitWork) -> None:
    work = divide(both, "private")
    for _ in SHARDS:
        assert claimed(both, lease_s=600).split_id == divided.split_id, "public models are made before private ones"
    sweep(both, later_s=61)
    assert get_split(both, work).stage == "training 5 models in 3 parts", "whoever is at the public split comes next"
    sweep(both, later_s=601)  # they are silent
    sweep(both, later_s=700)
    assert get_split(both, work).stage.startswith("no cpu, torch 2.11 worker comes")


def test_any_device_lets_another_kind_restart(both: Instance, olga: dict[str, str], divided: SplitWork) -> None:
    held = claimed(both)
    both.client.post("/api/v1/competitions/digits/prepare", headers=olga)
    assert split_of(both, "public", device="cuda") is None
    both.client.post("/api/v1/competitions/digits/prepare?any_device=true", headers=olga)
    with both.database.write() as session:
        assert not model_shard_leases.close(session, held)
    assert not taken(both, "public", device="cuda").is_divided
    assert not finish(both, divided)


def test_check_of_a_ready_split_names_the_worker_needed(both: Instance, olga: dict[str, str]) -> None:
    for visibility in ("private", "public"):
        work = taken(both, visibility, device="cuda")
        assert finish(both, work, device="cuda")
    both.client.post("/api/v1/competitions/digits/prepare", headers=olga)
    assert split_of(both, "public") is None
    sweep(both, later_s=30)
    assert get_split(both, work).stage == "checking every file"
    sweep(both, later_s=61)
    said = "no cuda worker comes to check every file: start one"
    assert get_split(both, work).stage == said
    with both.database.write() as session:
        assert not waiting.is_waiting(session.get_one(Split, work.split_id))
        checks = checklist(session, session.scalars(select(Competition)).one()).checks
        assert any(check.detail == said for check in checks)
    again = taken(both, "public", device="cuda")
    with both.database.write() as session:
        assert split_leases.heartbeat(session, again, lease_s=60, stage="data", progress=0.0)
    sweep(both, later_s=61)
    assert get_split(both, work).stage == "data"


def test_the_control_page_offers_what_the_waiting_split_needs(both: Instance, divided: SplitWork) -> None:
    with both.database.write() as session:
        competition = session.scalars(select(Competition)).one()
        assert checklist(session, competition).act == "", "nothing has failed"
        model_shard_leases.notify(session, clock(session) + timedelta(seconds=61))
        steps = checklist(session, competition)
        assert steps.act == "prepare-on-any-device"
        assert any(check.detail.startswith("no cpu, torch 2.11 worker comes") for check in steps.checks)


def make_public(server: Instance) -> None:
    assert finish(server, taken(server, "public"))


def set_competition(server: Instance, **values: object) -> None:
    with server.database.write() as session:
        competition = session.scalars(select(Competition)).one()
        for name, value in values.items():
            setattr(competition, name, value)


def test_competition_can_open_before_private_models_are_made(both: Instance, olga: dict[str, str]) -> None:
    make_public(both)
    assert both.state() == "preparing", "the private split's data could still be wrong"
    work = divide(both, "private")
    assert both.state() == "ready"
    with both.database.read() as session:
        checks = checklist(session, session.scalars(select(Competition)).one()).checks
    assert all(check.ok for check in checks if "private" in check.text)
    assert both.client.post("/api/v1/competitions/digits/open", json={}, headers=olga).status_code == 200
    close_all(both)
    assert finish(both, taken(both, "private"))
    assert get_split(both, work).state == SplitState.READY


def test_private_models_wait_for_submissions_in_the_first_half(both: Instance, olga: dict[str, str]) -> None:
    def may_begin() -> bool:
        with both.database.write() as session:
            work = model_shard_leases.claim(session, facts(), lease_s=60, submissions_wait=True)
            return work is not None and model_shard_leases.hand_over(session, work)

    make_public(both)
    with both.database.read() as session:
        config = session.scalars(select(Competition.config)).one()
    set_competition(both, config={**config, "splits": {**config["splits"], "opens_with": "both"}})
    work = divide(both, "private")
    assert both.state() == "preparing", "it wants both splits"
    assert may_begin(), "the opening waits for it"
    set_competition(both, config=config, state="ready")
    set_competition(both, opens_at=now() - timedelta(days=1), closes_at=now() + timedelta(days=2))
    assert not may_begin()
    with both.database.write() as session:
        model_shard_leases.notify(session, clock(session) + timedelta(seconds=100), submissions_wait=True)
    assert get_split(both, work).stage == "waits: submissions go first"
    set_competition(both, opens_at=now() - timedelta(days=3))
    assert may_begin(), "half of its time is over"


def test_doubt_about_a_measurement_stands_on_the_ready_split(both: Instance, olga: dict[str, str]) -> None:
    assert finish(both, taken(both, "public"), data_difference="the data differs", doubt="measured beside other work")
    shown = both.client.get("/api/v1/competitions/digits/preparation", headers=olga).json()["splits"]
    (public,) = (each for each in shown if each["visibility"] == "public")
    assert (public["state"], public["error"]) == ("ready", "the data differs; measured beside other work")


def close_all(server: Instance) -> None:
    """Make every shard of one split."""
    for _ in SHARDS:
        with server.database.write() as session:
            assert model_shard_leases.close(session, claimed_in(session))


def test_only_workers_that_round_alike_share_a_split(both: Instance, divided: SplitWork) -> None:
    for other in (facts(device="cuda"), facts(torch="2.12.0")):
        assert claim(both, other) is None
    close_all(both)
    sweep(both, later_s=61)
    assert get_split(both, divided).stage.startswith("no cpu, torch 2.11 worker comes"), "an end that nobody makes"
    assert split_of(both, "public", device="cuda") is None
    assert split_of(both, "public") is not None
