"""Opening and closing by themselves, the choice of finals, re-scoring, decisions, the reveal."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from lethe.competition.visibility import Visibility
from server.competitions import competitions
from server.db import now
from server.finals.finals import tick
from server.models.account import AuditEvent
from server.models.competition import Competition, CompetitionState, Team
from server.models.evaluation import Evaluation
from server.models.submission import Fault, Submission
from tests.support.instance import Instance

S = CompetitionState
PRIVATE = Visibility.PRIVATE
C = "/api/v1/competitions/digits"
MANY: dict[str, object] = {"submissions_per_day": 50}


def send(server: Instance, headers: dict[str, str], score: float | None = None) -> str:
    submission = server.submit(headers).json()["id"]
    if score is not None:
        server.score(submission, score)
    return submission


def select_final(server: Instance, headers: dict[str, str], submission: str, method: str = "PUT") -> Any:
    return server.client.request(method, f"/api/v1/submissions/{submission}/selection", headers=headers)


def finals(server: Instance) -> set[str]:
    with server.database.read() as session:
        return set(session.scalars(select(Submission.id).where(Submission.selected.is_(True))))


def privately_queued(server: Instance) -> list[str]:
    with server.database.read() as session:
        competition = session.scalars(select(Competition)).one()
        split = competitions.get_split(session, competition, PRIVATE)
        return list(session.scalars(select(Evaluation.submission_id).where(Evaluation.split_id == split.id)))


def rescoring(server: Instance, organiser: dict[str, str]) -> Any:
    return server.client.get(f"{C}/rescoring", headers=organiser).json()


def decide(server: Instance, organiser: dict[str, str], submission: str, decision: str) -> Any:
    return server.client.post(
        f"{C}/finals/{submission}/decision",
        headers=organiser,
        json={"decision": decision, "reason": "it divides by zero there"},
    )


def test_opens_and_closes_by_itself_and_catches_up(both: Instance) -> None:
    at = now()
    both.competition(state=S.READY, opens_at=at + timedelta(hours=1), closes_at=at + timedelta(hours=2))
    with both.database.write() as session:
        assert tick(session, at) == 0
        assert tick(session, at + timedelta(hours=1)) == 1
    assert both.state() == S.OPEN
    with both.database.write() as session:
        assert tick(session, at + timedelta(hours=9)) == 1
        assert tick(session, at + timedelta(hours=9)) == 0
    assert both.state() == S.PROVISIONAL, "nothing was sent, so there is nothing to wait for"
    with both.database.read() as session:
        actions = session.scalars(select(AuditEvent.action).where(AuditEvent.actor == "system")).all()
    assert actions == [
        "competition.opened",
        "competition.closed",
        "competition.finals_frozen",
        "competition.provisional",
    ]


def test_after_a_long_downtime_one_tick_does_it_all(server: Instance) -> None:
    at = now()
    server.competition(state=S.READY, opens_at=at - timedelta(hours=2), closes_at=at - timedelta(hours=1))
    server.tick()
    assert server.state() == S.PROVISIONAL


def test_choice_is_limited_shown_and_changeable(both: Instance) -> None:
    both.organised(limits=MANY | {"final_selections": 2})
    ada = both.participant("ada")
    first, second, third = (send(both, ada, score) for score in (0.3, 0.2, 0.1))
    shown = both.client.get(f"{C}/finals", headers=ada).json()
    assert {row["id"] for row in shown} == {first, second}, "without a choice, the best"
    assert select_final(both, ada, third).json()["selected"] is True
    assert [row["id"] for row in both.client.get(f"{C}/finals", headers=ada).json()] == [third]
    assert select_final(both, ada, second).status_code == 200
    assert select_final(both, ada, first).status_code == 409
    assert select_final(both, ada, second, "DELETE").json()["selected"] is False
    assert select_final(both, ada, first).status_code == 200


def test_choice_is_the_teams_alone(server: Instance) -> None:
    olga = server.organised(limits=MANY)
    ada, bob = server.participant("ada"), server.participant("bob")
    submission, cheat, failed = send(server, ada, 0.3), send(server, ada, 0.4), send(server, ada)
    server.fail(failed, Fault.PARTICIPANT)
    with server.database.write() as session:
        session.get_one(Submission, cheat).disqualified_at = now()
    refused = ((bob, submission, 404), (olga, submission, 404), (ada, failed, 409), (ada, cheat, 409))
    assert [select_final(server, who, one).status_code for who, one, _ in refused] == [status for *_, status in refused]
    with server.database.write() as session:
        session.scalars(select(Competition)).one().closes_at = now()
    assert select_final(server, ada, submission).status_code == 409, "although nothing has moved the state yet"
    server.close(olga)
    assert select_final(server, ada, submission).status_code == 409


def test_without_a_choice_the_best_are_taken_ties_to_the_earlier(both: Instance) -> None:
    olga = both.organised(limits=MANY | {"final_selections": 2})
    ada, bob, eve, cyd = (both.participant(name) for name in ("ada", "bob", "eve", "cyd"))
    sent = [send(both, ada, score) for score in (0.1, 0.5, 0.5, 0.5)]
    chosen = send(both, bob, 0.1)
    send(both, bob, 0.9)
    select_final(both, bob, chosen)
    best, broken = send(both, eve, 0.4), send(both, eve)
    select_final(both, eve, broken)  # which never gets a score
    both.fail(broken, Fault.PARTICIPANT)
    disqualified, of_cheats = send(both, cyd, 0.5), send(both, both.participant("dan"), 0.4)
    with both.database.write() as session:
        session.get_one(Submission, disqualified).disqualified_at = now()
        session.get_one(Team, session.get_one(Submission, of_cheats).team_id).disqualified_at = now()
    both.close(olga)
    assert finals(both) == {sent[1], sent[2], chosen, best}
    assert sorted(privately_queued(both)) == sorted(finals(both))


def test_closed_waits_for_what_was_received_in_time(both: Instance) -> None:
    olga = both.organised(limits=MANY)
    ada = both.participant("ada")
    first, late = send(both, ada, 0.1), send(both, ada)
    both.close(olga)
    waiting = rescoring(both, olga)
    assert (waiting["frozen"], waiting["waiting_public"]) == (False, 1)
    both.score(late, 0.7)
    both.tick()
    assert finals(both) == {first, late}
    assert rescoring(both, olga)["frozen"] is True


def test_board_becomes_provisional_and_is_then_revealed(both: Instance) -> None:
    olga = both.organised(limits=MANY)
    ada, bob = both.participant("ada"), both.participant("bob")
    of_ada, of_bob = send(both, ada, 0.5), send(both, bob, 0.4)
    both.close(olga)
    both.tick()
    assert len(privately_queued(both)) == 2, "ticks twice, evaluates once"
    both.score(of_ada, 0.1, visibility=PRIVATE)
    both.tick()
    shown = rescoring(both, olga)
    assert (both.state(), shown["finals"], shown["scored"]) == (S.CLOSED, 2, 1)
    assert (shown["runs_done"], shown["runs_total"]) == (4, 8)
    both.score(of_bob, 0.2, visibility=PRIVATE)
    both.tick()
    assert both.state() == S.PROVISIONAL
    assert both.client.get(f"{C}/leaderboard?board=private", headers=ada).status_code == 404
    sealed = both.board(olga, board="private")
    assert sealed == [("bob", 0.2), ("ada", 0.1)]
    assert both.client.post(f"{C}/reveal", headers=ada).status_code == 403
    assert both.client.post(f"{C}/reveal", headers=olga).json()["state"] == "final"
    assert both.board(ada, board="private") == sealed
    mine = both.shown(ada, of_ada)
    assert (mine["score"]["final_score"], mine["private_score"]["final_score"]) == (0.5, 0.1)


def test_hosts_failure_on_private_data_is_retried_then_shown(server: Instance) -> None:
    olga = server.organised(limits=MANY)
    ada = server.participant("ada")
    submission = send(server, ada, 0.5)
    server.close(olga)
    for attempt in range(4):
        assert len(privately_queued(server)) == attempt + 1
        assert rescoring(server, olga)["failed"] == []
        server.fail(submission, Fault.HOST, visibility=PRIVATE)
        server.tick()
    assert [row["submission"] for row in rescoring(server, olga)["failed"]] == [submission]
    assert server.state() == S.CLOSED
    mine = server.shown(ada, submission)
    assert (mine["stage"], mine["failure"]) == ("scored", None), "what happens on private data is not told"


@pytest.mark.parametrize(
    ("decision", "then"), [("exclude", None), ("run-again", "the final"), ("use-next-choice", "the next")]
)
def test_failed_final_is_decided_upon(both: Instance, decision: str, then: str | None) -> None:
    olga = both.organised(limits=MANY | {"final_selections": 1})
    ada = both.participant("ada")
    sent = {"the final": send(both, ada, 0.5), "the next": send(both, ada, 0.4)}
    both.close(olga)
    both.fail(sent["the final"], Fault.PARTICIPANT, visibility=PRIVATE)
    both.tick()
    assert both.state() == S.CLOSED
    [shown] = both.client.get(f"{C}/preparation", headers=olga).json()["failed_finals"]
    assert (shown["submission"], shown["team"], shown["fault"]) == (sent["the final"], "ada", "participant")
    decided = decide(both, olga, sent["the final"], decision)
    assert (decided.status_code, decided.json()["failed"], decided.json()["finals"]) == (200, [], 1 if then else 0)
    assert both.client.get(f"{C}/preparation", headers=olga).json()["failed_finals"] == []
    if then:
        both.score(sent[then], 0.25, visibility=PRIVATE)
        both.tick()
    assert both.state() == S.PROVISIONAL
    assert both.board(olga, board="private") == ([("ada", 0.25)] if then else [])
    with both.database.read() as session:
        events = session.execute(select(AuditEvent.action, AuditEvent.actor, AuditEvent.reason)).all()
    excluded = ("final.excluded", "olga", "it divides by zero there") in [tuple(event) for event in events]
    assert excluded is (decision != "run-again")


def test_decision_is_for_failed_finals_only(server: Instance) -> None:
    olga = server.organised(limits=MANY)
    submission = send(server, server.participant("ada"), 0.5)
    bob = server.participant("bob")
    for act in (lambda: None, lambda: server.close(olga)):
        act()
        for decision in ("exclude", "run-again", "use-next-choice"):
            assert decide(server, olga, submission, decision).status_code == 409
            assert decide(server, bob, submission, decision).status_code == 403
