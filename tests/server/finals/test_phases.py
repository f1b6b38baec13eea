"""Phases, late submissions and extensions: what is taken when, and what the close re-scores."""

from datetime import datetime, timedelta
from typing import Any

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


def close(server: Instance, organiser: dict[str, str]) -> None:
    assert server.client.post(f"{C}/close", headers=organiser, json={"reason": "over"}).status_code == 200
    server.tick()


def board(server: Instance, **asked: str) -> dict[str, Any]:
    answer = server.client.get(f"{C}/leaderboard", params=asked)
    assert answer.status_code == 200, answer.text
    return {row["team"]: row["score"] for row in answer.json()["rows"]}


def selected(server: Instance) -> list[str]:
    with server.database.read() as session:
        return list(session.scalars(select(Submission.id).where(Submission.selected.is_(True))))


def test_late_submissions_are_unofficial_on_a_board_of_their_own(both: Instance) -> None:
    server = both
    owner = server.account("olga", Role.ORGANISER)
    server.competition(organiser=owner, extra=LATE)
    organiser, ada = server.headers(owner), server.participant("ada")
    official = server.submit(ada).json()["id"]
    server.score(official, 0.1)
    close(server, organiser)
    sent = server.submit(ada)
    assert (sent.status_code, sent.json()["phase"], sent.json()["is_official"]) == (201, "late", False)
    server.score(sent.json()["id"], 0.9)
    late_only = server.submit(server.participant("lea"))
    server.score(late_only.json()["id"], 0.5)
    assert server.client.put(f"/api/v1/submissions/{sent.json()['id']}/selection", headers=ada).status_code == 409
    assert board(server) == {"ada": 0.1}
    assert board(server, phase="late") == {"ada": 0.9, "lea": 0.5}
    assert selected(server) == [official]
    server.score(official, 0.2, visibility=Visibility.PRIVATE)
    server.tick()
    assert server.client.post(f"{C}/reveal", headers=organiser, json={"reason": "done"}).status_code == 200
    assert board(server, board="private") == {"ada": 0.2}
    assert server.submit(ada).status_code == 201  # practice goes on
    assert server.submit(ada).status_code == 429  # with a quota of its own
    answer = server.client.get(f"{C}/leaderboard", params={"board": "private", "phase": "late"})
    assert answer.status_code == 404


def test_an_unfinished_late_submission_holds_up_no_close(server: Instance) -> None:
    owner = server.account("olga", Role.ORGANISER)
    server.competition(organiser=owner, extra=LATE)
    ada = server.participant("ada")
    official = server.submit(ada).json()["id"]
    assert server.client.post(f"{C}/close", headers=server.headers(owner), json={"reason": "x"}).status_code == 200
    assert server.submit(ada).status_code == 201  # late, while the official one is still being scored
    server.score(official, 0.1)
    server.tick()
    assert selected(server) == [official]


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
    owner = server.account("olga", Role.ORGANISER)
    server.competition(organiser=owner, extra=phases(now() + HOUR))
    organiser, ada = server.headers(owner), server.participant("ada")
    practice = server.submit(ada)
    assert (practice.json()["phase"], practice.json()["is_official"]) == ("practice", False)
    server.score(practice.json()["id"], 0.7)
    assert server.submit(ada).status_code == 429
    assert board(server) == {}
    assert board(server, phase="practice") == {"ada": 0.7}
    now_final = [{"name": "practice", "counts": False}, {"name": "final", "begins_at": (now() - HOUR).isoformat()}]
    body = {"phases": now_final, "reason": "earlier"}
    assert server.client.patch(C, headers=organiser, json=body).status_code == 200
    final = server.submit(ada)
    assert (final.json()["phase"], final.json()["is_official"]) == ("final", True)
    assert final.json()["quota"]["phase"] == "final"
    server.score(final.json()["id"], 0.3)
    close(server, organiser)
    assert selected(server) == [final.json()["id"]]
    assert board(server) == {"ada": 0.3}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([{"name": "late"}], "taken twice"),
        ([{"name": "one"}, {"name": "one"}], "taken twice"),
        ([{"name": "one", "counts": False}], "nobody could be ranked"),
        ([{"name": "one"}, {"name": "two"}], "must begin after"),
        ([{"name": "Not a name"}], "pattern"),
    ],
)
def test_phases_that_make_no_sense_are_refused(server: Instance, given: list[dict[str, Any]], says: str) -> None:
    owner = server.account("olga", Role.ORGANISER)
    server.competition(organiser=owner)
    body = {"phases": given, "reason": "try"}
    answer = server.client.patch(C, headers=server.headers(owner), json=body)
    assert answer.status_code == 422
    assert says in answer.text


def test_a_phase_with_submissions_stays_as_it_is(server: Instance) -> None:
    owner = server.account("olga", Role.ORGANISER)
    server.competition(organiser=owner, extra=phases(now() + HOUR))
    server.submit(server.participant("ada"))
    body = {"phases": [{"name": "practice", "counts": True}], "reason": "generous"}
    answer = server.client.patch(C, headers=server.headers(owner), json=body)
    assert answer.status_code == 409


def extend(server: Instance, organiser: dict[str, str], team: str, until: datetime | None) -> int:
    with server.database.read() as session:
        team_id = session.scalars(select(Team.id).where(Team.name == team)).one()
    body = {"act": "extend", "until": until.isoformat() if until else None, "reason": "their power failed"}
    answer = server.client.post(f"{C}/teams/{team_id}/acts", headers=organiser, json=body)
    return int(answer.status_code)


def test_one_teams_extension_counts_and_the_finals_wait_for_it(server: Instance) -> None:
    owner = server.account("olga", Role.ORGANISER)
    server.competition(organiser=owner, extra=LATE)
    organiser, ada, bob = server.headers(owner), server.participant("ada"), server.participant("bob")
    first = server.submit(ada).json()["id"]
    server.score(first, 0.1)
    server.submit(bob)
    assert extend(server, organiser, "ada", now() - HOUR) == 422
    assert extend(server, organiser, "ada", now() + 48 * HOUR) == 204
    assert server.client.post(f"{C}/close", headers=organiser, json={"reason": "x"}).status_code == 200
    second, unofficial = server.submit(ada).json(), server.submit(bob).json()
    assert (second["is_official"], unofficial["is_official"]) == (True, False)
    for sent in (second, unofficial):
        server.score(sent["id"], 0.2)
    server.tick()
    assert selected(server) == []  # nothing is frozen before the extension ends
    assert server.client.put(f"/api/v1/submissions/{first}/selection", headers=ada).status_code == 200
    assert extend(server, organiser, "ada", None) == 204
    assert server.submit(ada).json()["phase"] == "late"
    events = server.client.get(f"{C}/audit?action=team.extended", headers=organiser).json()
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
