"""Organisers' acts: each with a reason, each in the audit log, in every state."""

from datetime import timedelta

from sqlalchemy import select, update

from lethe.competition.visibility import Visibility
from server.db import now
from server.models.account import AuditEvent, Role
from server.models.competition import Competition, CompetitionState, Team
from server.models.evaluation import Evaluation, PublicScore, Shard
from server.models.submission import Fault, Submission
from tests.support.instance import PASSWORD, Instance

BASE = "/api/v1/competitions/digits"
WHY = "a good reason"
Headers = dict[str, str]


def entered(server: Instance, score: float | None = None, **limits: object) -> tuple[Headers, Headers, str]:
    """Return the headers of olga and of ada, and ada's submission to olga's competition, scored if a score is given."""
    olga, ada = server.organised(limits=limits), server.participant("ada")
    submission = str(server.submit(ada).json()["id"])
    if score is not None:
        server.score(submission, score)
    return olga, ada, submission


def events(server: Instance) -> set[tuple[str, str]]:
    with server.database.read() as session:
        return {tuple(row) for row in session.execute(select(AuditEvent.action, AuditEvent.reason))}


def test_cancelled_by_an_organiser_does_not_cost_the_quota(both: Instance) -> None:
    olga, ada, submission = entered(both, submissions_per_day=1)
    assert both.act(olga, submission, "cancel").json()["stage"] == "cancelled"
    assert both.act(olga, submission, "cancel").status_code == 409
    assert both.submit(ada).status_code == 201
    assert ("submission.cancelled", WHY) in events(both)


def test_run_again_counts_instead_and_keeps_the_old_score(both: Instance) -> None:
    olga, ada, submission = entered(both)
    assert both.act(olga, submission, "run-again").status_code == 409, "it has not ended"
    both.score(submission, 0.25)
    assert both.act(olga, submission, "run-again").json()["stage"] == "queued"
    seen = both.shown(ada, submission)
    assert (seen["score"], seen["can_cancel"]) == (None, False)
    refused = both.client.post(f"/api/v1/submissions/{submission}/cancel", headers=ada)
    assert (refused.status_code, "organisers" in refused.json()["detail"]) == (409, True)
    both.score(submission, 0.5)
    assert both.shown(ada, submission)["score"]["final_score"] == 0.5
    assert (both.board(), used_today(both, ada)) == ([("ada", 0.5)], 1)
    with both.database.read() as session:
        assert sorted(session.scalars(select(PublicScore.final_score))) == [0.25, 0.5]
        assert sorted(session.scalars(select(Evaluation.is_current))) == [False, True]


def used_today(server: Instance, headers: dict[str, str]) -> int:
    return int(server.client.get(f"{BASE}/quota", headers=headers).json()["used_today"])


def test_submission_that_never_ran_is_run_again_on_the_sample_first(both: Instance) -> None:
    olga, ada, submission = entered(both)
    both.fail(submission, Fault.HOST)
    assert both.shown(ada, submission)["refunded"] is True
    both.act(olga, submission, "run-again")
    with both.database.read() as session:
        queued = select(Shard.kind).where(Shard.state == "queued")
        assert session.scalars(queued).all() == ["smoke"]
    both.score(submission, 0.5)
    seen = both.shown(ada, submission)
    assert (seen["stage"], seen["failure"], seen["refunded"]) == ("scored", None, False)
    both.act(olga, submission, "run-again")
    with both.database.read() as session:
        assert set(session.scalars(queued)) == {"runs"}


def test_submission_that_is_not_scored_can_be_run_again(both: Instance) -> None:
    olga, ada, submission = entered(both, 0.25)
    with both.database.write() as session:
        session.execute(update(Submission).values(stage="scoring", finished_at=None))
        session.execute(update(Evaluation).values(state="scoring"))
    assert both.act(olga, submission, "run-again").json()["stage"] == "queued"
    assert both.act(olga, submission, "cancel").json()["stage"] == "scoring", "the one before goes on"
    assert both.shown(ada, submission)["refunded"] is False
    both.act(olga, submission, "run-again")
    both.score(submission, 0.5)
    assert (both.board(), used_today(both, ada)) == ([("ada", 0.5)], 1)


def test_disqualified_submission_leaves_the_board_and_comes_back(both: Instance) -> None:
    olga, _, submission = entered(both, 0.5)
    assert both.act(olga, submission, "disqualify").status_code == 200
    assert both.act(olga, submission, "disqualify").status_code == 409
    assert both.board() == []
    assert both.act(olga, submission, "restore").status_code == 200
    assert {("submission.disqualified", WHY), ("submission.restored", WHY)} <= events(both)


def test_act_without_a_reason_or_right_is_refused(server: Instance) -> None:
    olga, ada, submission = entered(server)
    for verb in ("cancel", "run-again", "disqualify", "restore"):
        assert server.act(olga, submission, verb, reason="").status_code == 422
        for who in (ada, server.organiser(f"not-{verb}")):
            assert server.act(who, submission, verb).status_code == 403
        assert server.act(olga, "0" * 16, verb).status_code == 404
    assert server.client.post(f"/api/v1/submissions/{submission}/cancel", headers=olga).status_code == 404
    assert server.shown(ada, submission)["stage"] == "queued"


def test_disqualified_team_is_seen_by_organisers_only(server: Instance) -> None:
    olga, ada, _ = entered(server, 0.5)
    with server.database.read() as session:
        path = f"{BASE}/teams/{session.scalars(select(Team.id)).one()}/acts"
    for act, status in (("disqualify", 409), ("restore", 201)):
        assert server.client.post(path, headers=olga, json={"act": act, "reason": WHY}).status_code == 204
        assert server.submit(ada).status_code == status
    assert {("team.disqualified", WHY), ("team.restored", WHY)} <= events(server)


def test_restored_after_the_close_is_re_scored(server: Instance) -> None:
    olga, _, submission = entered(server, 0.5)
    server.close(olga)
    server.act(olga, submission, "disqualify")
    server.tick()
    assert server.state() == CompetitionState.PROVISIONAL
    server.act(olga, submission, "restore")
    assert server.state() == CompetitionState.CLOSED
    server.tick()
    for score, again in ((0.25, True), (0.125, False)):
        server.score(submission, score, visibility=Visibility.PRIVATE)
        server.tick()
        assert server.state() == CompetitionState.PROVISIONAL
        if again:
            assert server.act(olga, submission, "run-again", split="private").status_code == 200
            assert server.state() == CompetitionState.CLOSED, "a final is run again before the reveal"
    assert server.board(olga, board="private") == [("ada", 0.125)]


def test_previewed_limits_are_those_of_the_present_phase(both: Instance) -> None:
    begun = (now() - timedelta(hours=1)).isoformat()
    phases = (
        '[[phases]]\nname = "practice"\nsubmissions_total = 2\n'
        f'[[phases]]\nname = "final"\nbegins_at = {begun}\nsubmissions_per_day = 4\n'
    )
    olga = both.organised(extra=phases, limits={"submissions_per_day": 5, "submissions_total": 9})
    ada = both.participant("ada")
    for _ in range(3):
        both.submit(ada)
    body = {"limits": {"submissions_per_day": 1, "submissions_total": 2}, "reason": WHY, "preview": True}
    for phase, over_total in (("final", {"ada": 3}), ("practice", {})):  # that phase is over
        with both.database.write() as session:
            session.execute(update(Submission).values(phase=phase))
        seen = both.client.patch(BASE, headers=olga, json=body).json()
        assert (seen["over_daily_quota"], seen["over_total_quota"]) == ({}, over_total)


def test_a_limit_that_was_taken_earlier_does_not_forbid_the_change_of_others(server: Instance) -> None:
    olga = server.organised()
    with server.database.write() as session:
        competition = session.scalars(select(Competition)).one()
        limits = {**competition.config["limits"], "wall_time_s": 0.1}  # less than all runs need to start
        competition.config = {**competition.config, "limits": limits}
    body = {"limits": {"submissions_per_day": 7}, "reason": WHY}
    assert server.client.patch(BASE, headers=olga, json=body).status_code == 200
    body["limits"] = {"wall_time_s": 0.05}
    assert server.client.patch(BASE, headers=olga, json=body).json()["errors"][0]["field"] == "limits.wall_time_s"


def test_rerun_that_has_no_score_leaves_the_one_before_it(both: Instance) -> None:
    olga, ada, submission = entered(both, 0.25)
    for _ in range(2):
        both.act(olga, submission, "run-again")
        assert both.act(olga, submission, "cancel").json()["stage"] == "scored"
    assert (both.board(), used_today(both, ada)) == ([("ada", 0.25)], 1)
    assert both.shown(ada, submission)["refunded"] is False
    both.act(olga, submission, "run-again")
    both.fail(submission, Fault.HOST)
    assert (both.board(), used_today(both, ada)) == ([("ada", 0.25)], 1)
    assert ("submission.run_again_failed", "") in events(both)
    both.act(olga, submission, "run-again")
    both.fail(submission, Fault.PARTICIPANT)
    assert both.board() == []


def test_extended_deadline_opens_again_until_the_finals_are_frozen(both: Instance) -> None:
    olga, ada, _ = entered(both)
    later = {"closes_at": (now() + timedelta(days=3)).isoformat(), "reason": WHY}
    both.client.post(f"{BASE}/close", headers=olga)
    assert both.client.patch(BASE, headers=olga, json=later).json()["state"] == "open"
    assert both.submit(ada).status_code == 201
    for one in both.client.get(f"{BASE}/submissions", headers=ada).json():
        both.act(olga, one["id"], "cancel")
    both.close(olga)
    assert both.client.patch(BASE, headers=olga, json=later).status_code == 409


def test_account_is_banned_and_made_an_organiser_by_an_administrator(server: Instance) -> None:
    account, root = server.account("ada"), server.headers(server.account("root", Role.ADMINISTRATOR))
    ada = server.headers(account)

    def act(who: Headers, verb: str, name: str = "ada") -> int:
        path = f"/api/v1/admin/accounts/{name}/acts"
        return int(server.client.post(path, headers=who, json={"act": verb, "reason": WHY}).status_code)

    assert (act(ada, "ban"), act(root, "ban"), act(root, "ban", "root")) == (403, 204, 409)
    assert server.client.get("/api/v1/me", headers=ada).status_code == 401
    logged_in = server.client.post("/api/v1/tokens", json={"name": "ada", "password": PASSWORD})
    assert logged_in.status_code == 401
    assert (act(root, "unban"), act(root, "make-organiser")) == (204, 204)
    assert server.client.get("/api/v1/me", headers=ada).status_code == 401, "its tokens do not come back"
    assert server.client.get("/api/v1/me", headers=server.headers(account)).json()["role"] == "organiser"
    assert {("account.disabled", WHY), ("account.enabled", WHY)} <= events(server)
