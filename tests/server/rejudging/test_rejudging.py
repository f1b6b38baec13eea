"""Re-judging: beside the live results, previewed, applied as one or discarded."""

from typing import Any

import pytest
from sqlalchemy import select

from lethe.competition.visibility import Visibility
from server.competitions import competitions
from server.evaluations import evaluations, leases
from server.leaderboard import boards
from server.models.account import AuditEvent, Role
from server.models.evaluation import Evaluation, PublicScore, Shard
from server.models.submission import Fault, Submission
from server.rejudging import rejudgings
from tests.support.instance import Instance
from tests.support.rejudging import BASE, board, finish


def play(server: Instance) -> tuple[dict[str, str], dict[str, str]]:
    """Return the organiser's headers, and three scored submissions by their team's name."""
    organiser = server.account("olga", Role.ORGANISER)
    server.competition(organiser=organiser)
    sent = {}
    for name, score in (("ada", 0.5), ("bob", 0.4), ("eve", 0.3)):
        sent[name] = server.submit(server.participant(name)).json()["id"]
        server.score(sent[name], score)
    return server.headers(organiser), sent


def rejudge(server: Instance, olga: dict[str, str], **values: object) -> Any:
    body = {"changed": "scorer", "reason": "the cap was wrong", **values}
    return server.client.post(f"{BASE}/rejudgings", headers=olga, json=body)


def step(server: Instance, olga: dict[str, str], rejudging: str, verb: str, **body: str) -> Any:
    return server.client.post(f"{BASE}/rejudgings/{rejudging}/{verb}", headers=olga, json=body or None)


BEFORE = [("ada", 0.5), ("bob", 0.4), ("eve", 0.3)]


def test_new_scores_count_only_once_applied(both: Instance) -> None:
    olga, sent = play(both)
    rejudging = rejudge(both, olga).json()["id"]
    for name, score in (("ada", 0.1), ("bob", 0.4), ("eve", 0.45)):
        finish(both, sent[name], score)
    assert board(both) == BEFORE
    preview = step(both, olga, rejudging, "preview").json()
    assert preview["complete"] is True
    changes = {
        row["team"]: (row["old_rank"], row["old_score"], row["new_rank"], row["new_score"]) for row in preview["teams"]
    }
    assert changes == {"ada": (1, 0.5, 3, 0.1), "eve": (3, 0.3, 1, 0.45)}
    assert board(both) == BEFORE, "asking changes nothing"
    assert step(both, olga, rejudging, "apply").json()["state"] == "applied"
    with both.database.read() as session:
        competition = competitions.get(session, "digits", account=None)
        rows = boards.whole_board(session, competition, Visibility.PUBLIC).rows
        assert [(row.entry.team, row.entry.score) for row in rows] == [("eve", 0.45), ("bob", 0.4), ("ada", 0.1)]
        assert len(session.scalars(select(PublicScore)).all()) == 6, "old scores are kept"
        event = session.scalars(select(AuditEvent).where(AuditEvent.action == "rejudging.applied")).one()
    assert event.reason == "the cap was wrong"
    assert {change["team"] for change in event.data["teams"]} == {"ada", "eve"}


def test_submission_shows_nothing_of_a_running_re_judging(server: Instance) -> None:
    olga, sent = play(server)
    headers = server.headers(server.account("gus"))
    ada = server.client.get(f"/api/v1/submissions/{sent['ada']}", headers=olga).json()
    rejudge(server, olga)
    finish(server, sent["ada"], 0.9)
    assert server.client.get(f"/api/v1/submissions/{sent['ada']}", headers=olga).json() == ada
    assert server.client.get(f"{BASE}/rejudgings", headers=headers).status_code == 403


def test_failed_in_a_re_judging_is_shown_once_applied(both: Instance) -> None:
    olga, sent = play(both)
    rejudging = rejudge(both, olga, submissions=[sent["ada"]]).json()["id"]
    finish(both, sent["ada"], None)
    assert both.client.get(f"/api/v1/submissions/{sent['ada']}", headers=olga).json()["stage"] == "scored"
    step(both, olga, rejudging, "apply")
    shown = both.client.get(f"/api/v1/submissions/{sent['ada']}", headers=olga).json()
    assert (shown["stage"], shown["score"], shown["failure"]["error_class"]) == ("failed", None, "exception")


def test_apply_waits_for_the_last_evaluation(server: Instance) -> None:
    olga, sent = play(server)
    rejudging = rejudge(server, olga).json()["id"]
    finish(server, sent["ada"], 0.9)
    answer = step(server, olga, rejudging, "apply")
    assert answer.status_code == 409
    assert "2 evaluations" in answer.json()["detail"]


def test_discarded_leaves_everything_as_it_was(both: Instance) -> None:
    olga, sent = play(both)
    rejudging = rejudge(both, olga).json()["id"]
    finish(both, sent["ada"], 0.9)
    assert step(both, olga, rejudging, "discard", reason="not needed").json()["state"] == "discarded"
    assert board(both) == BEFORE
    with both.database.read() as session:
        assert "queued" not in session.scalars(select(Shard.state)).all()
    for verb in ("apply", "discard"):
        assert (
            step(both, olga, rejudging, verb, **({"reason": "again"} if verb == "discard" else {})).status_code == 409
        )


def test_second_re_judging_waits_for_the_first(server: Instance) -> None:
    olga, _sent = play(server)
    rejudge(server, olga)
    assert rejudge(server, olga).status_code == 409


@pytest.mark.parametrize("by", ["submissions", "team", "error_class", "received"])
def test_submissions_are_chosen(server: Instance, by: str) -> None:
    olga, sent = play(server)
    everything = server.client.get(f"{BASE}/all-submissions", headers=olga).json()
    failed = server.submit(server.participant("fay")).json()["id"]
    server.fail(failed, Fault.PARTICIPANT)
    with server.database.read() as session:
        team = session.get_one(Submission, sent["bob"]).team_id
    moments = {row["id"]: row["received_at"] for row in everything}
    values, expected = {
        "submissions": ({"submissions": [sent["ada"], sent["eve"]]}, {sent["ada"], sent["eve"]}),
        "team": ({"team_id": team}, {sent["bob"]}),
        "error_class": ({"error_class": "exception"}, {failed}),
        "received": ({"received_from": moments[sent["bob"]], "received_before": moments[sent["eve"]]}, {sent["bob"]}),
    }[by]
    rejudging = rejudge(server, olga, **values).json()["id"]
    preview = step(server, olga, rejudging, "preview").json()
    assert {row["submission_id"] for row in preview["submissions"]} == expected
    assert preview["complete"] is False


def test_nothing_chosen_is_a_conflict(server: Instance) -> None:
    olga, _sent = play(server)
    assert rejudge(server, olga, error_class="timeout").status_code == 409


def fail_as_host(server: Instance) -> None:
    """Claim the next shard and give it back for good."""
    with server.database.write() as session:
        shard = leases.claim(session, worker="w", lease_s=60)
        assert shard is not None
        assert leases.give_back(session, shard, reason="the disk is full", runs_done=0, max_attempts=1)


def retry(server: Instance) -> int:
    with server.database.write() as session:
        return rejudgings.retry_host_faults(session, max_attempts=1)


def test_host_fault_is_retried_and_replaces_no_score(both: Instance) -> None:
    olga, sent = play(both)
    made = rejudge(both, olga, submissions=[sent["ada"], sent["bob"]]).json()["id"]
    finish(both, sent["bob"], 0.1)
    with both.database.write() as session:
        bobs = select(Evaluation.id).where(Evaluation.submission_id == sent["bob"], Evaluation.is_current.is_(False))
        evaluations.evaluation_repository.cancel_open_shards(session, session.scalars(bobs).one())
    for _ in range(evaluations.HOST_RETRIES):
        fail_as_host(both)
        assert step(both, olga, made, "preview").json()["complete"] is True
        assert retry(both) == 1
        assert step(both, olga, made, "preview").json()["complete"] is False
        assert step(both, olga, made, "apply").status_code == 409
    fail_as_host(both)
    assert retry(both) == 0, "it is not tried for ever"
    assert step(both, olga, made, "apply").json()["state"] == "applied"
    mine = both.client.get(f"/api/v1/submissions/{sent['ada']}", headers=olga).json()
    assert (mine["stage"], mine["score"]["final_score"]) == ("scored", 0.5)
    with both.database.read() as session:
        competition = competitions.get(session, "digits", account=None)
        rows = boards.whole_board(session, competition, Visibility.PUBLIC).rows
    assert [(row.entry.team, row.entry.score) for row in rows] == [("ada", 0.5), ("eve", 0.3), ("bob", 0.1)]


def test_what_a_participant_fails_at_is_not_tried_again(server: Instance) -> None:
    olga, sent = play(server)
    rejudge(server, olga, submissions=[sent["ada"]])
    finish(server, sent["ada"], None)
    assert retry(server) == 0


def test_submissions_are_named_by_the_beginning_of_their_ids(server: Instance) -> None:
    olga, sent = play(server)
    made = rejudge(server, olga, submissions=[sent["ada"][:10]]).json()
    assert made["chosen"] == {"submission_ids": [sent["ada"]]}
    refused = rejudge(server, olga, submissions=["zz", ""], split="private")
    assert refused.status_code == 422
    assert [error["message"] for error in refused.json()["errors"]] == ["begins no id of digits", "begins several ids"]


def test_unfinished_preview_marks_every_number(server: Instance) -> None:
    olga, sent = play(server)
    made = rejudge(server, olga).json()["id"]
    finish(server, sent["ada"], 0.1)
    preview = step(server, olga, made, "preview").json()
    assert preview["teams"]
    assert not any(team["final"] for team in preview["teams"])


def test_failed_evaluations_do_not_hold_the_bar(server: Instance) -> None:
    olga, sent = play(server)
    made = rejudge(server, olga).json()["id"]
    for name, score in (("ada", 0.1), ("bob", None), ("eve", None)):
        finish(server, sent[name], score)
    status = server.client.get(f"{BASE}/rejudgings/{made}", headers=olga).json()
    assert (status["complete"], status["runs_done"]) == (True, status["runs"])


def test_rerun_and_its_cancelling_leave_a_running_re_judging(both: Instance) -> None:
    olga, sent = play(both)
    started = rejudge(both, olga, changed="host").json()["id"]
    for act in ("run-again", "cancel"):
        body = {"act": act, "reason": "a disk broke"}
        assert both.client.post(f"{BASE}/submissions/{sent['ada']}/acts", headers=olga, json=body).status_code == 200
    assert board(both) == BEFORE
    with both.database.read() as session:
        mine = select(Evaluation.state, Shard.state).join(Shard).where(Evaluation.rejudging_id == started)
        assert {tuple(row) for row in session.execute(mine)} == {("queued", "queued")}
    for name, score in (("ada", 0.1), ("bob", 0.4), ("eve", 0.45)):
        finish(both, sent[name], score)
    assert step(both, olga, started, "apply").status_code == 200
    assert board(both)[0] == ("eve", 0.45)
