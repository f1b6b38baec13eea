"""The dashboard over HTTP: each organiser sees their own competitions, and what is wrong with them."""

from server.db import now
from server.models.account import Role
from server.models.submission import Fault
from tests.support.instance import Instance

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
