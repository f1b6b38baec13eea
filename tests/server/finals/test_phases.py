"""Phases, late submissions and extensions: what is taken when, and what the close re-scores."""

from datetime import datetime, timedelta

import pytest
from sqlalchemy import select

from lethe.competition.visibility import Visibility
from server import db
from server.config import get_settings
from server.db import now
from server.finals import finals
from server.models.account import Role
from server.models.competition import Competition, CompetitionState, Team
from server.models.submission import Submission
from server.submissions import submissions
from tests.support.instance import Instance

C = "/api/v1/competitions/digits"
LATE = "[late]\naccepted = true\nsubmissions_per_day = 2"
HOUR = timedelta(hours=1)


def phases(*begins: datetime) -> str:
    """Return the text of a practice phase that does not count and a final one, now after the beginning of both."""
    return (
        '[[phases]]\nname = "practice"\ncounts = false\nsubmissions_per_day = 1\n'
        f'[[phases]]\nname = "final"\nbegins_at = {begins[0].isoformat()}\nsubmissions_per_day = 3\n'
    )


def selected(server: Instance) -> list[str]:
    with server.database.read() as session:
        return list(session.scalars(select(Submission.id).where(Submission.selected.is_(True))))


def test_late_submissions_are_unofficial_on_a_board_of_their_own(both: Instance) -> None:
    olga, ada = both.organised(extra=LATE), both.participant("ada")
    official = both.submit(ada).json()["id"]
    assert both.client.post(f"{C}/close", headers=olga, json={"reason": "over"}).status_code == 200
    sent = both.submit(ada)
    assert (sent.status_code, sent.json()["phase"], sent.json()["is_official"]) == (201, "late", False)
    both.score(official, 0.1)
    both.tick()
    assert selected(both) == [official], "an unfinished late one holds up no close"
    both.score(sent.json()["id"], 0.9)
    late_only = both.submit(both.participant("lea"))
    both.score(late_only.json()["id"], 0.5)
    assert both.client.put(f"/api/v1/submissions/{sent.json()['id']}/selection", headers=ada).status_code == 409
    assert both.board() == [("ada", 0.1)]
    assert both.board(phase="late") == [("ada", 0.9), ("lea", 0.5)]
    both.score(official, 0.2, visibility=Visibility.PRIVATE)
    both.tick()
    assert both.client.post(f"{C}/reveal", headers=olga, json={"reason": "done"}).status_code == 200
    assert both.board(board="private") == [("ada", 0.2)]
    assert both.submit(ada).status_code == 201  # practice goes on
    assert both.submit(ada).status_code == 429  # with a quota of its own
    answer = both.client.get(f"{C}/leaderboard", params={"board": "private", "phase": "late"})
    assert answer.status_code == 404


def test_late_submissions_end_and_need_a_setting(server: Instance) -> None:
    over = now() - 2 * HOUR
    owner = server.account("olga", Role.ORGANISER)
    until = f"[late]\naccepted = true\nuntil = {(now() + 48 * HOUR).isoformat()}"
    ended = server.competition(organiser=owner, closes_at=over, extra=until)
    with server.database.write() as session:  # a file that is over is not taken
        row = session.merge(ended)
        row.config = row.config | {"late": row.config["late"] | {"until": (over + HOUR).isoformat()}}
    server.competition("never", organiser=owner, closes_at=over)
    ada = server.participant("ada")
    assert server.submit(ada).status_code == server.submit(ada, slug="never").status_code == 409
    body = {"late": {"accepted": True}, "reason": "practice"}
    server.client.patch("/api/v1/competitions/never", headers=server.headers(owner), json=body)
    assert server.submit(ada, slug="never").json()["phase"] == "late"


def test_a_phase_has_its_own_quota_and_may_not_count(server: Instance) -> None:
    olga = server.organised(extra=phases(now() + HOUR))
    ada = server.participant("ada")
    practice = server.submit(ada)
    assert (practice.json()["phase"], practice.json()["is_official"]) == ("practice", False)
    chosen = server.client.put(f"/api/v1/submissions/{practice.json()['id']}/selection", headers=ada)
    assert (chosen.status_code, "practice" in chosen.text) == (409, True)
    server.score(practice.json()["id"], 0.7)
    assert server.submit(ada).status_code == 429
    assert server.board() == []
    assert server.board(phase="practice") == [("ada", 0.7)]
    changed = {"phases": [{"name": "practice", "counts": True}], "reason": "generous"}
    assert server.client.patch(C, headers=olga, json=changed).status_code == 409, "it has submissions"
    now_final = [{"name": "practice", "counts": False}, {"name": "final", "begins_at": (now() - HOUR).isoformat()}]
    body = {"phases": now_final, "reason": "earlier"}
    assert server.client.patch(C, headers=olga, json=body).status_code == 200
    final = server.submit(ada)
    assert (final.json()["phase"], final.json()["is_official"]) == ("final", True)
    assert final.json()["quota"]["phase"] == "final"
    server.score(final.json()["id"], 0.3)
    server.close(olga)
    assert selected(server) == [final.json()["id"]]
    assert server.board() == [("ada", 0.3)]


def test_phases_that_make_no_sense_are_refused(server: Instance) -> None:
    olga = server.organised()
    for given, says in (
        ([{"name": "late"}], "taken twice"),
        ([{"name": "one"}, {"name": "one"}], "taken twice"),
        ([{"name": "one", "counts": False}], "nobody could be ranked"),
        ([{"name": "one"}, {"name": "two"}], "must begin after"),
        ([{"name": "Not a name"}], "pattern"),
    ):
        answer = server.client.patch(C, headers=olga, json={"phases": given, "reason": "try"})
        assert (answer.status_code, says in answer.text) == (422, True), given


def extend(server: Instance, organiser: dict[str, str], team: str, until: datetime | None) -> int:
    with server.database.read() as session:
        team_id = session.scalars(select(Team.id).where(Team.name == team)).one()
    body = {"act": "extend", "until": until.isoformat() if until else None, "reason": "their power failed"}
    answer = server.client.post(f"{C}/teams/{team_id}/acts", headers=organiser, json=body)
    return int(answer.status_code)


def test_one_teams_extension_counts_and_the_finals_wait_for_it(server: Instance) -> None:
    olga = server.organised(extra=LATE)
    ada, bob = server.participant("ada"), server.participant("bob")
    first = server.submit(ada).json()["id"]
    server.score(first, 0.1)
    server.submit(bob)
    assert extend(server, olga, "ada", now() - HOUR) == 422
    assert extend(server, olga, "ada", now() + 48 * HOUR) == 204
    assert server.client.post(f"{C}/close", headers=olga, json={"reason": "x"}).status_code == 200
    second, unofficial = server.submit(ada).json(), server.submit(bob).json()
    assert (second["is_official"], unofficial["is_official"]) == (True, False)
    for sent in (second, unofficial):
        server.score(sent["id"], 0.2)
    server.tick()
    assert selected(server) == []  # nothing is frozen before the extension ends
    assert server.client.put(f"/api/v1/submissions/{first}/selection", headers=ada).status_code == 200
    assert extend(server, olga, "ada", None) == 204
    assert server.submit(ada).json()["phase"] == "late"
    events = server.client.get(f"{C}/audit?action=team.extended", headers=olga).json()
    assert [event["reason"] for event in events] == ["their power failed"] * 2
    with server.database.write() as session:
        bobs = session.scalars(select(Submission).where(Submission.stage == "queued", Submission.is_official)).all()
        for submission in bobs:
            submission.stage = "cancelled"
    server.tick()
    assert selected(server) == [first]


def test_finals_wait_until_uploads_in_flight_are_stored(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = server.account("olga", Role.ORGANISER)
    competition = server.competition(organiser=owner)
    ada = server.participant("ada")
    monkeypatch.setenv("LETHE_CLOSE_GRACE_S", "30")
    get_settings.cache_clear()
    closed_at = now() - timedelta(seconds=5)
    with server.database.write() as session:
        found = session.get_one(Competition, competition.id)
        found.closes_at, found.state = closed_at, CompetitionState.CLOSED.value
    server.tick()
    assert server.state() == "closed"
    # An upload whose last byte came a second before the close, and that was checked until now.
    monkeypatch.setattr("server.submissions.upload_check.now", lambda: closed_at - timedelta(seconds=1))
    monkeypatch.setattr(submissions, "check_may_submit", lambda *_args, **_kw: None)
    sent = server.submit(ada)
    assert (sent.status_code, sent.json()["is_official"]) == (201, True)
    server.score(sent.json()["id"], 0.4)
    with server.database.write() as session:
        finals.tick(session, closed_at + timedelta(seconds=29))
    assert selected(server) == []
    with server.database.write() as session:
        finals.tick(session, closed_at + timedelta(seconds=31))
    assert selected(server) == [sent.json()["id"]]
    assert server.submit(ada).status_code == 409  # what was in time comes too late once the finals are fixed


def test_the_databases_clock_decides_what_is_late(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    server.competition(closes_at=now() + HOUR)
    monkeypatch.setattr(submissions, "clock_difference", lambda _session: 2 * HOUR)
    assert server.submit(server.participant("ada")).status_code == 409


def test_a_clock_that_is_behind_is_measured(both: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    with both.database.read() as session:
        assert db.clock_difference(session) == timedelta(0)
        behind = now() - 3 * HOUR
        monkeypatch.setattr(db, "now", lambda: behind)
        assert timedelta(hours=2.9) < db.clock_difference(session) < timedelta(hours=3.1)
