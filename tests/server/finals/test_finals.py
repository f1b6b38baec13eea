"""Opening and closing by themselves, the choice of finals, re-scoring, decisions, the reveal."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from lethe.competition.visibility import Visibility
from server.competitions import competitions
from server.db import now
from server.finals.finals import tick
from server.models.account import AuditEvent, Role
from server.models.competition import Competition, CompetitionState
from server.models.evaluation import Evaluation
from server.models.submission import Fault, Submission
from tests.support.instance import GOOD_CODE, Instance

S = CompetitionState
PRIVATE = Visibility.PRIVATE


def opened(server: Instance, **limits: object) -> dict[str, str]:
    """Make an open competition. Return its organiser's headers."""
    organiser = server.account("olga", Role.ORGANISER)
    server.competition(organiser=organiser, limits={"submissions_per_day": 50, **limits})
    return server.headers(organiser)


def send(server: Instance, headers: dict[str, str], score: float | None = None) -> str:
    submission = server.submit(headers, GOOD_CODE).json()["id"]
    if score is not None:
        server.score(submission, score)
    return submission


def close(server: Instance, organiser: dict[str, str]) -> None:
    assert server.client.post("/api/v1/competitions/digits/close", headers=organiser).status_code == 200


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
    return server.client.get("/api/v1/competitions/digits/rescoring", headers=organiser).json()


def decide(server: Instance, organiser: dict[str, str], submission: str, decision: str) -> Any:
    return server.client.post(
        f"/api/v1/competitions/digits/finals/{submission}/decision",
        headers=organiser,
        json={"decision": decision, "reason": "it divides by zero there"},
    )


# --- the clock ---


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


# --- the choice ---


def test_choice_is_limited_shown_and_changeable(both: Instance) -> None:
    opened(both, final_selections=2)
    ada = both.participant("ada")
    first, second, third = (send(both, ada, score) for score in (0.3, 0.2, 0.1))
    shown = both.client.get("/api/v1/competitions/digits/finals", headers=ada).json()
    assert {row["id"] for row in shown} == {first, second}, "without a choice, the best"
    assert select_final(both, ada, third).json()["selected"] is True
    shown = both.client.get("/api/v1/competitions/digits/finals", headers=ada).json()
    assert [row["id"] for row in shown] == [third]
    assert select_final(both, ada, second).status_code == 200
    assert select_final(both, ada, first).status_code == 409
    assert select_final(both, ada, second, "DELETE").json()["selected"] is False
    assert select_final(both, ada, first).status_code == 200


def test_choice_is_the_teams_alone(server: Instance) -> None:
    olga = opened(server)
    ada, bob = server.participant("ada"), server.participant("bob")
    submission = send(server, ada, 0.3)
    assert select_final(server, bob, submission).status_code == 404
    assert select_final(server, olga, submission).status_code == 404


def test_choice_is_frozen_at_the_deadline(server: Instance) -> None:
    olga = opened(server)
    ada = server.participant("ada")
    submission = send(server, ada, 0.3)
    with server.database.write() as session:
        session.scalars(select(Competition)).one().closes_at = now()
    assert select_final(server, ada, submission).status_code == 409, "although nothing has moved the state yet"
    close(server, olga)
    assert select_final(server, ada, submission).status_code == 409


def test_failed_submission_is_no_final(server: Instance) -> None:
    opened(server)
    ada = server.participant("ada")
    submission = send(server, ada)
    server.fail(submission, Fault.PARTICIPANT)
    assert select_final(server, ada, submission).status_code == 409


def test_without_a_choice_the_best_are_taken_ties_to_the_earlier(both: Instance) -> None:
    olga = opened(both, final_selections=2)
    ada, bob = both.participant("ada"), both.participant("bob")
    sent = [send(both, ada, score) for score in (0.1, 0.5, 0.5, 0.5)]
    chosen = send(both, bob, 0.1)
    send(both, bob, 0.9)
    select_final(both, bob, chosen)
    close(both, olga)
    both.tick()
    assert finals(both) == {sent[1], sent[2], chosen}
    assert sorted(privately_queued(both)) == sorted(finals(both))


def test_chosen_that_never_got_a_score_gives_way_to_the_best(server: Instance) -> None:
    olga = opened(server)
    ada = server.participant("ada")
    best, broken = send(server, ada, 0.4), send(server, ada)
    select_final(server, ada, broken)
    server.fail(broken, Fault.PARTICIPANT)
    close(server, olga)
    server.tick()
    assert finals(server) == {best}


# --- re-scoring ---


def test_closed_waits_for_what_was_received_in_time(both: Instance) -> None:
    olga = opened(both)
    ada = both.participant("ada")
    first, late = send(both, ada, 0.1), send(both, ada)
    close(both, olga)
    both.tick()
    assert rescoring(both, olga)["frozen"] is False
    assert rescoring(both, olga)["waiting_public"] == 1
    both.score(late, 0.7)
    both.tick()
    assert finals(both) == {first, late}
    assert rescoring(both, olga)["frozen"] is True


def test_board_becomes_provisional_and_is_then_revealed(both: Instance) -> None:
    olga = opened(both)
    ada, bob = both.participant("ada"), both.participant("bob")
    of_ada, of_bob = send(both, ada, 0.5), send(both, bob, 0.4)
    close(both, olga)
    both.tick()
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
    path = "/api/v1/competitions/digits/leaderboard?board=private"
    assert both.client.get(path, headers=ada).status_code == 404
    sealed = both.client.get(path, headers=olga).json()["rows"]
    assert [(row["team"], row["score"]) for row in sealed] == [("bob", 0.2), ("ada", 0.1)]
    assert both.client.post("/api/v1/competitions/digits/reveal", headers=ada).status_code == 403
    assert both.client.post("/api/v1/competitions/digits/reveal", headers=olga).json()["state"] == "final"
    assert both.client.get(path, headers=ada).json()["rows"] == sealed
    mine = both.client.get(f"/api/v1/submissions/{of_ada}", headers=ada).json()
    assert (mine["score"]["final_score"], mine["private_score"]["final_score"]) == (0.5, 0.1)


def test_reveal_needs_a_provisional_board(server: Instance) -> None:
    olga = opened(server)
    assert server.client.post("/api/v1/competitions/digits/reveal", headers=olga).status_code == 409


def test_hosts_failure_on_private_data_is_retried_then_shown(server: Instance) -> None:
    olga = opened(server)
    ada = server.participant("ada")
    submission = send(server, ada, 0.5)
    close(server, olga)
    server.tick()
    for attempt in range(4):
        assert len(privately_queued(server)) == attempt + 1
        assert rescoring(server, olga)["failed"] == []
        server.fail(submission, Fault.HOST, visibility=PRIVATE)
        server.tick()
    assert [row["submission"] for row in rescoring(server, olga)["failed"]] == [submission]
    assert server.state() == S.CLOSED
    mine = server.client.get(f"/api/v1/submissions/{submission}", headers=ada).json()
    assert (mine["stage"], mine["failure"]) == ("scored", None), "what happens on private data is not told"


def failed_final(server: Instance) -> tuple[dict[str, str], str, str]:
    """Close a competition whose only final fails on private data. Return organiser, final, and the next choice."""
    olga = opened(server, final_selections=1)
    ada = server.participant("ada")
    best, following = send(server, ada, 0.5), send(server, ada, 0.4)
    close(server, olga)
    server.tick()
    server.fail(best, Fault.PARTICIPANT, visibility=PRIVATE)
    server.tick()
    assert server.state() == S.CLOSED
    return olga, best, following


def test_failed_final_is_shown_with_its_competition(both: Instance) -> None:
    olga, final, _following = failed_final(both)
    path = "/api/v1/competitions/digits/preparation"
    [shown] = both.client.get(path, headers=olga).json()["failed_finals"]
    assert (shown["submission"], shown["team"], shown["fault"]) == (final, "ada", "participant")
    decide(both, olga, final, "exclude")
    assert both.client.get(path, headers=olga).json()["failed_finals"] == []


def test_participants_failure_can_be_excluded(both: Instance) -> None:
    olga, final, _following = failed_final(both)
    assert decide(both, olga, final, "exclude").status_code == 200
    assert both.state() == S.PROVISIONAL
    rows = both.client.get("/api/v1/competitions/digits/leaderboard?board=private", headers=olga).json()["rows"]
    assert rows == []


def test_participants_failure_can_be_run_again(server: Instance) -> None:
    olga, final, _following = failed_final(server)
    assert decide(server, olga, final, "run-again").json()["failed"] == []
    server.score(final, 0.25, visibility=PRIVATE)
    server.tick()
    assert server.state() == S.PROVISIONAL


def test_next_choice_takes_the_place_of_a_failed_final(server: Instance) -> None:
    olga, final, following = failed_final(server)
    assert decide(server, olga, final, "use-next-choice").json()["finals"] == 1
    server.score(following, 0.2, visibility=PRIVATE)
    server.tick()
    assert server.state() == S.PROVISIONAL
    rows = server.client.get("/api/v1/competitions/digits/leaderboard?board=private", headers=olga).json()["rows"]
    assert [row["score"] for row in rows] == [0.2]
    with server.database.read() as session:
        events = session.execute(select(AuditEvent.action, AuditEvent.actor, AuditEvent.reason)).all()
    assert ("final.excluded", "olga", "it divides by zero there") in [tuple(event) for event in events]


@pytest.mark.parametrize("decision", ["exclude", "run-again", "use-next-choice"])
def test_decision_is_for_failed_finals_only(server: Instance, decision: str) -> None:
    olga = opened(server)
    submission = send(server, server.participant("ada"), 0.5)
    assert decide(server, olga, submission, decision).status_code == 409
    close(server, olga)
    server.tick()
    assert decide(server, olga, submission, decision).status_code == 409
    assert decide(server, server.participant("bob"), submission, decision).status_code == 403


def test_disqualified_team_is_not_re_scored(server: Instance) -> None:
    olga = opened(server)
    submission = send(server, server.participant("ada"), 0.5)
    with server.database.write() as session:
        session.get_one(Submission, submission).disqualified_at = now()
    close(server, olga)
    server.tick()
    assert privately_queued(server) == []
    assert server.state() == S.PROVISIONAL
