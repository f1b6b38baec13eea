"""Organisers' acts: each with a reason, each in the audit log, in every state."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from lethe.competition.visibility import Visibility
from server.db import now
from server.models.account import AuditEvent, Role
from server.models.competition import Competition, CompetitionState, Team
from server.models.evaluation import Evaluation, PublicScore, Shard
from server.models.submission import Fault, Submission
from tests.support.instance import Instance

BASE = "/api/v1/competitions/digits"
WHY = "a good reason"


def opened(server: Instance, **limits: object) -> dict[str, str]:
    organiser = server.account("olga", Role.ORGANISER)
    server.competition(organiser=organiser, limits=limits)
    return server.headers(organiser)


def act(server: Instance, headers: dict[str, str], submission: str, verb: str, **values: str) -> Any:
    body = {"act": verb, "reason": WHY, **values}
    return server.client.post(f"{BASE}/submissions/{submission}/acts", headers=headers, json=body)


def board(server: Instance, headers: dict[str, str] | None = None) -> list[tuple[str, float]]:
    rows = server.client.get(f"{BASE}/leaderboard", headers=headers or {}).json()["rows"]
    return [(row["team"], row["score"]) for row in rows]


def events(server: Instance) -> set[tuple[str, str]]:
    with server.database.read() as session:
        return {tuple(row) for row in session.execute(select(AuditEvent.action, AuditEvent.reason))}


def test_cancelled_by_an_organiser_does_not_cost_the_quota(both: Instance) -> None:
    olga, ada = opened(both, submissions_per_day=1), both.participant("ada")
    submission = both.submit(ada).json()["id"]
    assert act(both, olga, submission, "cancel").json()["stage"] == "cancelled"
    assert act(both, olga, submission, "cancel").status_code == 409
    assert both.submit(ada).status_code == 201
    assert ("submission.cancelled", WHY) in events(both)


def test_run_again_counts_instead_and_keeps_the_old_score(both: Instance) -> None:
    olga, ada = opened(both), both.participant("ada")
    submission = both.submit(ada).json()["id"]
    assert act(both, olga, submission, "run-again").status_code == 409, "it has not ended"
    both.score(submission, 0.25)
    assert act(both, olga, submission, "run-again").json()["stage"] == "queued"
    assert both.client.get(f"/api/v1/submissions/{submission}", headers=ada).json()["score"] is None
    both.score(submission, 0.5)
    assert both.client.get(f"/api/v1/submissions/{submission}", headers=ada).json()["score"]["final_score"] == 0.5
    with both.database.read() as session:
        assert sorted(session.scalars(select(PublicScore.final_score))) == [0.25, 0.5]
        assert sorted(session.scalars(select(Evaluation.is_current))) == [False, True]


def shown(server: Instance, headers: dict[str, str], submission: str) -> Any:
    return server.client.get(f"/api/v1/submissions/{submission}", headers=headers).json()


def used_today(server: Instance, headers: dict[str, str]) -> int:
    return int(server.client.get(f"{BASE}/quota", headers=headers).json()["used_today"])


def test_rerun_is_not_its_teams_to_cancel(both: Instance) -> None:
    olga, ada = opened(both), both.participant("ada")
    submission = both.submit(ada).json()["id"]
    both.score(submission, 0.25)
    act(both, olga, submission, "run-again")
    assert shown(both, ada, submission)["can_cancel"] is False
    refused = both.client.post(f"/api/v1/submissions/{submission}/cancel", headers=ada)
    assert refused.status_code == 409
    assert "organisers" in refused.json()["detail"]
    both.score(submission, 0.5)
    assert (board(both), used_today(both, ada)) == ([("ada", 0.5)], 1)


def test_rerun_that_organisers_cancel_leaves_the_score_before_it(both: Instance) -> None:
    olga, ada = opened(both), both.participant("ada")
    submission = both.submit(ada).json()["id"]
    both.score(submission, 0.25)
    for _ in range(2):
        act(both, olga, submission, "run-again")
        assert act(both, olga, submission, "cancel").json()["stage"] == "scored"
    assert (board(both), used_today(both, ada)) == ([("ada", 0.25)], 1)
    assert shown(both, ada, submission)["refunded"] is False


def test_submission_that_never_ran_is_run_again_on_the_sample_first(both: Instance) -> None:
    olga, ada = opened(both), both.participant("ada")
    submission = both.submit(ada).json()["id"]
    both.fail(submission, Fault.HOST)
    act(both, olga, submission, "run-again")
    with both.database.read() as session:
        queued = select(Shard.kind).where(Shard.state == "queued")
        assert session.scalars(queued).all() == ["smoke"]
    both.score(submission, 0.5)
    act(both, olga, submission, "run-again")
    with both.database.read() as session:
        assert set(session.scalars(queued)) == {"runs"}


def test_submission_that_is_not_scored_can_be_run_again(both: Instance) -> None:
    olga, ada = opened(both), both.participant("ada")
    submission = both.submit(ada).json()["id"]
    both.score(submission, 0.25)
    with both.database.write() as session:
        session.execute(update(Submission).values(stage="scoring", finished_at=None))
        session.execute(update(Evaluation).values(state="scoring"))
    assert act(both, olga, submission, "run-again").json()["stage"] == "queued"
    assert act(both, olga, submission, "cancel").json()["stage"] == "scoring", "the one before goes on"
    assert shown(both, ada, submission)["refunded"] is False
    act(both, olga, submission, "run-again")
    both.score(submission, 0.5)
    assert (board(both), used_today(both, ada)) == ([("ada", 0.5)], 1)


def test_rerun_that_the_host_fails_at_leaves_the_score_before_it(both: Instance) -> None:
    olga, ada = opened(both), both.participant("ada")
    submission = both.submit(ada).json()["id"]
    both.score(submission, 0.25)
    act(both, olga, submission, "run-again")
    both.fail(submission, Fault.HOST)
    assert (board(both), used_today(both, ada)) == ([("ada", 0.25)], 1)
    assert ("submission.run_again_failed", "") in events(both)
    act(both, olga, submission, "run-again")
    both.fail(submission, Fault.PARTICIPANT)
    assert board(both) == []


def test_organisers_cancel_by_their_own_act_only(server: Instance) -> None:
    olga, ada = opened(server), server.participant("ada")
    submission = server.submit(ada).json()["id"]
    assert server.client.post(f"/api/v1/submissions/{submission}/cancel", headers=olga).status_code == 404
    assert shown(server, ada, submission)["stage"] == "queued"


def test_failed_by_the_host_and_run_again_gets_its_score(server: Instance) -> None:
    olga, ada = opened(server), server.participant("ada")
    submission = server.submit(ada).json()["id"]
    server.fail(submission, Fault.HOST)
    assert server.client.get(f"/api/v1/submissions/{submission}", headers=ada).json()["refunded"] is True
    act(server, olga, submission, "run-again")
    server.score(submission, 0.5)
    shown = server.client.get(f"/api/v1/submissions/{submission}", headers=ada).json()
    assert (shown["stage"], shown["failure"], shown["refunded"]) == ("scored", None, False)


def test_disqualified_submission_leaves_the_board_and_comes_back(both: Instance) -> None:
    olga, ada = opened(both), both.participant("ada")
    submission = both.submit(ada).json()["id"]
    both.score(submission, 0.5)
    assert act(both, olga, submission, "disqualify").status_code == 200
    assert act(both, olga, submission, "disqualify").status_code == 409
    assert board(both) == []
    assert act(both, olga, submission, "restore").status_code == 200
    assert {("submission.disqualified", WHY), ("submission.restored", WHY)} <= events(both)


@pytest.mark.parametrize("verb", ["cancel", "run-again", "disqualify", "restore"])
def test_act_without_a_reason_or_right_is_refused(server: Instance, verb: str) -> None:
    olga, ada = opened(server), server.participant("ada")
    submission = server.submit(ada).json()["id"]
    assert act(server, olga, submission, verb, reason="").status_code == 422
    assert act(server, ada, submission, verb).status_code == 403
    assert act(server, server.organiser("oscar"), submission, verb).status_code == 403
    assert act(server, olga, "0" * 16, verb).status_code == 404


def test_disqualified_team_is_seen_by_organisers_only(server: Instance) -> None:
    olga, ada = opened(server), server.participant("ada")
    server.score(server.submit(ada).json()["id"], 0.5)
    with server.database.read() as session:
        team = session.scalars(select(Team.id)).one()
    body = {"act": "disqualify", "reason": WHY}
    assert server.client.post(f"{BASE}/teams/{team}/acts", headers=olga, json=body).status_code == 204
    assert server.submit(ada).status_code == 409
    body["act"] = "restore"
    assert server.client.post(f"{BASE}/teams/{team}/acts", headers=olga, json=body).status_code == 204
    assert server.submit(ada).status_code == 201
    assert {("team.disqualified", WHY), ("team.restored", WHY)} <= events(server)


def test_restored_after_the_close_is_re_scored(server: Instance) -> None:
    olga, ada = opened(server), server.participant("ada")
    submission = server.submit(ada).json()["id"]
    server.score(submission, 0.5)
    server.client.post(f"{BASE}/close", headers=olga)
    server.tick()
    act(server, olga, submission, "disqualify")
    server.tick()
    assert server.state() == CompetitionState.PROVISIONAL
    act(server, olga, submission, "restore")
    assert server.state() == CompetitionState.CLOSED
    server.tick()
    server.score(submission, 0.25, visibility=Visibility.PRIVATE)
    server.tick()
    assert server.state() == CompetitionState.PROVISIONAL


def test_final_is_run_again_before_the_reveal(server: Instance) -> None:
    olga, ada = opened(server), server.participant("ada")
    submission = server.submit(ada).json()["id"]
    server.score(submission, 0.5)
    server.client.post(f"{BASE}/close", headers=olga)
    server.tick()
    server.score(submission, 0.25, visibility=Visibility.PRIVATE)
    server.tick()
    assert act(server, olga, submission, "run-again", split="private").status_code == 200
    assert server.state() == CompetitionState.CLOSED
    server.score(submission, 0.125, visibility=Visibility.PRIVATE)
    server.tick()
    assert server.state() == CompetitionState.PROVISIONAL
    rows = server.client.get(f"{BASE}/leaderboard?board=private", headers=olga).json()["rows"]
    assert [row["score"] for row in rows] == [0.125]


def test_extended_deadline_opens_again(both: Instance) -> None:
    olga, ada = opened(both), both.participant("ada")
    both.submit(ada)
    both.client.post(f"{BASE}/close", headers=olga)
    later = (now() + timedelta(days=3)).isoformat()
    body = {"closes_at": later, "reason": WHY}
    extended = both.client.patch(BASE, headers=olga, json=body)
    assert extended.json()["state"] == "open"
    assert both.submit(ada).status_code == 201
    past = {"closes_at": (now() - timedelta(days=1)).isoformat(), "reason": WHY}
    assert both.client.patch(BASE, headers=olga, json=past).status_code == 422
    naive = {"closes_at": "2999-01-01T00:00:00", "reason": WHY}
    assert both.client.patch(BASE, headers=olga, json=naive).status_code == 422


def test_frozen_finals_keep_the_deadline(server: Instance) -> None:
    olga = opened(server)
    server.client.post(f"{BASE}/close", headers=olga)
    server.tick()
    body = {"closes_at": (now() + timedelta(days=3)).isoformat(), "reason": WHY}
    assert server.client.patch(BASE, headers=olga, json=body).status_code == 409


def test_limits_are_shown_first_and_then_changed(both: Instance) -> None:
    olga, ada = opened(both, submissions_per_day=5), both.participant("ada")
    for _ in range(3):
        both.submit(ada)
    body = {"limits": {"submissions_per_day": 2}, "reason": WHY, "preview": True}
    seen = both.client.patch(BASE, headers=olga, json=body).json()
    assert seen["applied"] is False
    assert seen["changed"] == {"limits.submissions_per_day": [5, 2]}
    assert seen["over_daily_quota"] == {"ada": 3}
    assert seen["unfinished"] == 3
    assert both.client.get(f"{BASE}/quota", headers=ada).json()["per_day"] == 5
    body["preview"] = False
    assert both.client.patch(BASE, headers=olga, json=body).json()["applied"] is True
    quota = both.client.get(f"{BASE}/quota", headers=ada).json()
    assert (quota["per_day"], quota["remaining"]) == (2, 0), "jumped over, and still nothing is left"
    assert ("competition.limits_changed", WHY) in events(both)


def test_previewed_limits_are_those_of_the_present_phase(both: Instance) -> None:
    begun = (now() - timedelta(hours=1)).isoformat()
    phases = (
        '[[phases]]\nname = "practice"\nsubmissions_total = 2\n'
        f'[[phases]]\nname = "final"\nbegins_at = {begun}\nsubmissions_per_day = 4\n'
    )
    owner, ada = both.account("olga", Role.ORGANISER), both.participant("ada")
    both.competition(organiser=owner, extra=phases, limits={"submissions_per_day": 5, "submissions_total": 9})
    olga = both.headers(owner)
    for _ in range(3):
        both.submit(ada)
    seen = preview(both, olga, submissions_per_day=1, submissions_total=2)
    assert (seen["over_daily_quota"], seen["over_total_quota"]) == ({}, {"ada": 3})
    with both.database.write() as session:
        session.execute(update(Submission).values(phase="practice"))
    seen = preview(both, olga, submissions_per_day=1, submissions_total=2)
    assert (seen["over_daily_quota"], seen["over_total_quota"]) == ({}, {}), "that phase is over"


def preview(server: Instance, organiser: dict[str, str], **limits: int) -> dict[str, Any]:
    body = {"limits": limits, "reason": WHY, "preview": True}
    seen: dict[str, Any] = server.client.patch(BASE, headers=organiser, json=body).json()
    return seen


@pytest.mark.parametrize("limits", [{"submissions_per_day": 0}, {"unknown": 1}, {"memory_mib": "much"}])
def test_wrong_limits_are_named(server: Instance, limits: dict[str, object]) -> None:
    olga = opened(server)
    answer = server.client.patch(BASE, headers=olga, json={"limits": limits, "reason": WHY})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == f"limits.{next(iter(limits))}"


def test_a_limit_that_was_taken_earlier_does_not_forbid_the_change_of_others(server: Instance) -> None:
    olga = opened(server)
    with server.database.write() as session:
        competition = session.scalars(select(Competition)).one()
        limits = {**competition.config["limits"], "wall_time_s": 0.1}  # less than all runs need to start
        competition.config = {**competition.config, "limits": limits}
    body = {"limits": {"submissions_per_day": 7}, "reason": WHY}
    assert server.client.patch(BASE, headers=olga, json=body).status_code == 200
    body["limits"] = {"wall_time_s": 0.05}
    assert server.client.patch(BASE, headers=olga, json=body).json()["errors"][0]["field"] == "limits.wall_time_s"


def test_announcement_is_read_by_all(server: Instance) -> None:
    olga = opened(server)
    body = {"title": "Clock", "text": "The *end* is near"}
    assert server.client.post(f"{BASE}/announcements", headers=olga, json=body).status_code == 201
    shown = server.client.get(f"{BASE}/announcements").json()
    assert [(row["title"], row["author"]) for row in shown] == [("Clock", "olga")]


def test_banned_account_is_out_at_once(server: Instance) -> None:
    ada = server.participant("ada")
    root = server.headers(server.account("root", Role.ADMINISTRATOR))
    path = "/api/v1/admin/accounts/ada/acts"
    assert server.client.post(path, headers=ada, json={"act": "ban", "reason": WHY}).status_code == 403
    assert server.client.post(path, headers=root, json={"act": "ban", "reason": WHY}).status_code == 204
    assert server.client.get("/api/v1/me", headers=ada).status_code == 401
    assert server.client.post(path, headers=root, json={"act": "unban", "reason": WHY}).status_code == 204
    own = server.client.post("/api/v1/admin/accounts/root/acts", headers=root, json={"act": "ban", "reason": WHY})
    assert own.status_code == 409
    assert {("account.disabled", WHY), ("account.enabled", WHY)} <= events(server)


def test_organiser_is_made_by_an_administrator(server: Instance) -> None:
    ada = server.participant("ada")
    root = server.headers(server.account("root", Role.ADMINISTRATOR))
    body = {"act": "make-organiser", "reason": WHY}
    server.client.post("/api/v1/admin/accounts/ada/acts", headers=root, json=body)
    assert server.client.get("/api/v1/me", headers=ada).json()["role"] == "organiser"


def test_archived_competition_stays_to_be_read(server: Instance) -> None:
    olga = opened(server)
    assert server.client.post(f"{BASE}/archive", headers=olga).status_code == 409
    server.client.post(f"{BASE}/close", headers=olga)
    server.tick()
    server.client.post(f"{BASE}/reveal", headers=olga)
    assert server.client.post(f"{BASE}/archive", headers=olga).json()["state"] == "archived"
    assert server.client.get(BASE).status_code == 200
