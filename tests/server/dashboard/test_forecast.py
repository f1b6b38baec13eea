"""Waits, capacity, what the close will bring, and the dashboard over HTTP."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from server.competitions import competitions
from server.dashboard import dashboard
from server.dashboard.dashboard import Light, get_dashboard
from server.dashboard.dashboard_repository import FailureCount
from server.dashboard.health_warnings import MANY_TEAMS, failure_warnings
from server.db import now
from server.models.account import Role
from server.models.competition import Competition
from server.models.evaluation import Evaluation, Shard, ShardAttempt
from server.models.submission import Fault
from server.models.worker import Worker
from tests.support.instance import Instance
from tests.support.scores import add_submission, add_team, scored
from tests.support.web import Visitor, plain_text


@pytest.fixture(autouse=True)
def _nothing_kept() -> None:
    dashboard._expected.clear()


def done_shards(session: Session, competition: Competition, waits_s: list[float], *, took_s: float) -> None:
    """Add shards of two runs each that waited so long and were then done at once."""
    evaluation = session.scalars(select(Evaluation)).first()
    assert evaluation is not None
    team = add_team(session, competition, "of-shards")
    at = now() - timedelta(hours=2)
    for number, wait_s in enumerate(waits_s):
        shard = Shard(
            evaluation_id=evaluation.id,
            team_id=team.id,
            split_id=evaluation.split_id,
            competition_id=competition.id,
            first_run=100 + 2 * number,
            n_runs=2,
            state="done",
            queued_at=at - timedelta(seconds=wait_s),
        )
        session.add(shard)
        session.flush()
        ended_at = at + timedelta(seconds=took_s)
        session.add(
            ShardAttempt(
                shard_id=shard.id, attempt=1, worker="w", started_at=at, ended_at=ended_at, outcome="done", runs_done=2
            )
        )


def add_worker(session: Session, name: str, *, seen_at: datetime, state: str = "active") -> None:
    session.add(Worker(name=name, device="cpu", memory_mib=1, versions={}, seen_at=seen_at, state=state))


def filled(server: Instance, waits_s: list[float]) -> Competition:
    competition = server.competition(limits={"final_selections": 2})
    with server.database.write() as session:
        split = competitions.splits(session, competition)[0]
        ada, mary = add_team(session, competition, "ada"), add_team(session, competition, "mary")
        for hours in (1, 2, 3):
            scored(session, ada, split, 0.1, hours_ago=hours)
        scored(session, mary, split, 0.1)
        add_submission(session, mary, stage="failed")
        done_shards(session, competition, waits_s, took_s=36.0)
        add_worker(session, "here", seen_at=now())
        add_worker(session, "here-too", seen_at=now())
        add_worker(session, "gone", seen_at=now() - timedelta(hours=1))
        add_worker(session, "leaving", seen_at=now(), state="draining")
    return competition


def test_capacity_and_close_are_foretold_from_workers_and_what_teams_may_send(server, monkeypatch):
    """Expected finals are counted again in the background."""
    competition, counted = filled(server, [float(wait) for wait in range(1, 101)]), []

    class Kept:
        def get(self, _key: object, compute: Callable[[], object], *, in_background: Callable[[], object]) -> object:
            counted.append(in_background())
            return compute()

    monkeypatch.setattr(dashboard, "_expected", Kept())
    with server.database.read() as session:
        found = get_dashboard(session, [competition])
    assert found.capacity.workers == 2
    assert found.capacity.runs_per_hour == pytest.approx(2 * 2 * 3600 / 36)
    waits = found.capacity.waits
    assert waits is not None
    assert (waits.median_s, waits.p90_s, waits.p99_s) == pytest.approx((50.0, 90.0, 99.0), abs=1e-3)
    close = found.rescoring["digits"]
    assert (close.finals, close.runs) == (3, 12)  # two of ada's three, mary's one; four runs each
    assert close.seconds == pytest.approx(12 * 3600 / 400)
    assert counted == [{competition.id: 3}]


def test_nothing_is_foretold_of_time_before_anything_ran(server: Instance) -> None:
    competition = server.competition()
    with server.database.read() as session:
        found = get_dashboard(session, [competition])
    assert found.capacity.waits is None
    assert found.use_of_capacity is None
    assert found.rescoring["digits"].seconds is None


@pytest.mark.parametrize(("cpu_s", "light"), [(0.05, Light.LOOK), (60.0, Light.GOOD)])
def test_dashboard_warns_where_retraining_fits_into_a_run(server: Instance, cpu_s: float, light: Light) -> None:
    competition = server.competition()
    with server.database.write() as session:
        for split in competitions.splits(session, competition):
            split.retraining_cpu_s, split.start_cpu_s = cpu_s, 0.02
    with server.database.read() as session:
        found = get_dashboard(session, [competition])
    said = [warning.text for warning in found.warnings]
    assert [text for text in said if "retraining from scratch fits" in text] == (said if light is Light.LOOK else [])
    assert found.light(competition) is light


def test_a_failed_split_turns_its_own_competitions_light_only(server: Instance) -> None:
    broken, sound = server.competition("broken", state="preparing"), server.competition("sound")
    with server.database.write() as session:
        competitions.splits(session, broken)[0].state = "failed"
    with server.database.read() as session:
        found = get_dashboard(session, [broken, sound])
    assert found.light(broken) is Light.BAD
    assert found.light(sound) is Light.GOOD


@pytest.mark.parametrize(
    ("fault", "teams", "bad"),
    [(Fault.HOST, 1, True), (Fault.PARTICIPANT, MANY_TEAMS, False), (Fault.PARTICIPANT, MANY_TEAMS - 1, None)],
)
def test_failures_that_are_no_ones_own_are_warned_of(fault: Fault, teams: int, bad: bool | None) -> None:
    found = failure_warnings([FailureCount("time out", fault.value, 12, now(), "digits", "", teams)])
    assert [warning.is_bad for warning in found] == ([] if bad is None else [bad])
    for warning in found:
        assert warning.href == "/organise/digits/submissions?stage=failed&error_class=time+out"


def test_the_page_leads_from_a_warning_to_its_remedy(server: Instance) -> None:
    olga = server.account("olga", Role.ORGANISER)
    competition = server.competition(organiser=olga)
    server.fail(server.submit(server.participant("ada")).json()["id"], Fault.HOST)
    visitor = Visitor(server)
    visitor.log_in("olga")
    page = visitor.get("/organise").text
    address = "/organise/digits/submissions?stage=failed&amp;error_class=exception"
    assert f'href="{address}">See them, and run them again</a>' in page
    assert "act" in plain_text(page)
    assert visitor.get(address.replace("&amp;", "&")).status_code == 200
    assert competition.slug == "digits"


BASE = "/api/v1/competitions/digits"


def test_overview_counts_queue_stages_and_teams(both: Instance) -> None:
    olga = both.account("olga", Role.ORGANISER)
    both.competition(organiser=olga)
    ada = both.submit(both.participant("ada")).json()["id"]
    both.submit(both.participant("bob"))
    both.score(ada, 0.5)
    found = both.client.get(f"{BASE}/overview", headers=both.headers(olga)).json()
    assert found["stages"] == {"scored": 1, "queued": 1}
    assert (found["teams"], found["unfinished"]) == (2, 1)
    assert [row["team"] for row in found["waiting"]] == ["bob"]
    assert any("no worker has been heard of" in warning["text"] for warning in found["warnings"])
    assert {row["visibility"]: row["state"] for row in found["splits"]} == {"public": "ready", "private": "ready"}


def test_dashboard_shows_only_what_its_reader_runs(server: Instance) -> None:
    olga, oskar = server.account("olga", Role.ORGANISER), server.account("oskar", Role.ORGANISER)
    server.competition(organiser=olga)
    server.competition("elsewhere", organiser=oskar)
    seen = {
        name: set(server.client.get("/api/v1/dashboard", headers=headers).json()["competitions"])
        for name, headers in {
            "olga": server.headers(olga),
            "oskar": server.headers(oskar),
            "adam": server.headers(server.account("adam", Role.ADMINISTRATOR)),
        }.items()
    }
    assert seen == {"olga": {"digits"}, "oskar": {"elsewhere"}, "adam": {"digits", "elsewhere"}}


def test_activity_counts_failures_on_their_day_by_fault(both: Instance) -> None:
    olga = both.account("olga", Role.ORGANISER)
    both.competition(organiser=olga)
    both.fail(both.submit(both.participant("ada")).json()["id"], Fault.HOST)
    for path in (f"{BASE}/activity", "/api/v1/dashboard/activity"):
        found = both.client.get(path, headers=both.headers(olga)).json()
        counted = [(row["day"], row["fault"], row["count"]) for row in found["failures_by_day"] if row["count"]]
        assert counted == [(now().date().isoformat(), "host", 1)]
        assert len(found["failures_by_day"]) == 8 * len(Fault)
        assert [row["runs"] for row in found["runs_by_hour"]] == [0] * 25
