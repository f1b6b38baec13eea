"""Re-judging: beside the live results, previewed, applied as one or discarded; over HTTP and on pages."""

from typing import Any

import pytest
from sqlalchemy import select

from lethe.competition.visibility import Visibility
from server.competitions import competitions
from server.evaluations import evaluations, leases
from server.leaderboard import boards
from server.models.account import AuditEvent
from server.models.competition import Competition
from server.models.evaluation import Evaluation, PublicScore, Rejudging, Shard
from server.models.submission import Fault, Submission
from server.rejudging import rejudgings
from tests.support.instance import Instance
from tests.support.scores import BASE
from tests.support.scores import finish_rejudged as finish
from tests.support.web import Visitor, counted_queries, plain_text


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
    assert both.board() == BEFORE
    preview = step(both, olga, rejudging, "preview").json()
    assert preview["complete"] is True
    changes = {
        row["team"]: (row["old_rank"], row["old_score"], row["new_rank"], row["new_score"]) for row in preview["teams"]
    }
    assert changes == {"ada": (1, 0.5, 3, 0.1), "eve": (3, 0.3, 1, 0.45)}
    assert both.board() == BEFORE, "asking changes nothing"
    assert step(both, olga, rejudging, "apply").json()["state"] == "applied"
    with both.database.read() as session:
        competition = competitions.get(session, "digits", account=None)
        rows = boards.whole_board(session, competition, Visibility.PUBLIC).rows
        assert [(row.entry.team, row.entry.score) for row in rows] == [("eve", 0.45), ("bob", 0.4), ("ada", 0.1)]
        assert len(session.scalars(select(PublicScore)).all()) == 6, "old scores are kept"
        event = session.scalars(select(AuditEvent).where(AuditEvent.action == "rejudging.applied")).one()
    assert event.reason == "the cap was wrong"
    assert {change["team"] for change in event.data["teams"]} == {"ada", "eve"}


def test_apply_waits_for_the_last_evaluation_and_shows_a_failure(both: Instance) -> None:
    olga, sent = play(both)
    before = both.shown(olga, sent["ada"])
    rejudging = rejudge(both, olga).json()["id"]
    assert rejudge(both, olga).status_code == 409, "the second waits for the first"
    assert both.client.get(f"{BASE}/rejudgings", headers=both.participant("gus")).status_code == 403
    finish(both, sent["ada"], None)
    assert both.shown(olga, sent["ada"]) == before
    refused = step(both, olga, rejudging, "apply")
    assert (refused.status_code, "2 evaluations" in refused.json()["detail"]) == (409, True)
    preview = step(both, olga, rejudging, "preview").json()
    assert preview["teams"]
    assert not any(team["final"] for team in preview["teams"])
    finish(both, sent["bob"], 0.1)
    finish(both, sent["eve"], None)
    status = both.client.get(f"{BASE}/rejudgings/{rejudging}", headers=olga).json()
    assert (status["complete"], status["runs_done"]) == (True, status["runs"]), "failed ones do not hold the bar"
    assert retry(both) == 0, "what a participant fails at is not tried again"
    step(both, olga, rejudging, "apply")
    shown = both.shown(olga, sent["ada"])
    assert (shown["stage"], shown["score"], shown["failure"]["error_class"]) == ("failed", None, "exception")


def test_discarded_leaves_everything_as_it_was(both: Instance) -> None:
    olga, sent = play(both)
    rejudging = rejudge(both, olga).json()["id"]
    finish(both, sent["ada"], 0.9)
    assert step(both, olga, rejudging, "discard", reason="not needed").json()["state"] == "discarded"
    assert both.board() == BEFORE
    with both.database.read() as session:
        assert "queued" not in session.scalars(select(Shard.state)).all()
    for verb in ("apply", "discard"):
        assert (
            step(both, olga, rejudging, verb, **({"reason": "again"} if verb == "discard" else {})).status_code == 409
        )


def test_submissions_are_chosen(server: Instance) -> None:
    olga, sent = play(server)
    everything = server.client.get(f"{BASE}/all-submissions", headers=olga).json()
    failed = server.submit(server.participant("fay")).json()["id"]
    server.fail(failed, Fault.PARTICIPANT)
    with server.database.read() as session:
        team = session.get_one(Submission, sent["bob"]).team_id
    moments = {row["id"]: row["received_at"] for row in everything}
    received = {"received_from": moments[sent["bob"]], "received_before": moments[sent["eve"]]}
    chosen: list[tuple[dict[str, object], set[str]]] = [
        ({"submissions": [sent["ada"][:10], sent["eve"]]}, {sent["ada"], sent["eve"]}),
        ({"team_id": team}, {sent["bob"]}),
        ({"error_class": "exception"}, {failed}),
        (received, {sent["bob"]}),
    ]
    for values, expected in chosen:
        rejudging = rejudge(server, olga, **values).json()["id"]
        preview = step(server, olga, rejudging, "preview").json()
        assert {row["submission_id"] for row in preview["submissions"]} == expected
        assert preview["complete"] is False
        step(server, olga, rejudging, "discard", reason="the next")
    assert rejudge(server, olga, error_class="timeout").status_code == 409, "nothing is chosen"
    refused = rejudge(server, olga, submissions=["zz", ""], split="private")
    assert refused.status_code == 422
    assert [error["message"] for error in refused.json()["errors"]] == ["begins no id of digits", "begins several ids"]


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


def test_rerun_and_its_cancelling_leave_a_running_re_judging(both: Instance) -> None:
    olga, sent = play(both)
    started = rejudge(both, olga, changed="host").json()["id"]
    for act in ("run-again", "cancel"):
        body = {"act": act, "reason": "a disk broke"}
        assert both.client.post(f"{BASE}/submissions/{sent['ada']}/acts", headers=olga, json=body).status_code == 200
    assert both.board() == BEFORE
    with both.database.read() as session:
        mine = select(Evaluation.state, Shard.state).join(Shard).where(Evaluation.rejudging_id == started)
        assert {tuple(row) for row in session.execute(mine)} == {("queued", "queued")}
    for name, score in (("ada", 0.1), ("bob", 0.4), ("eve", 0.45)):
        finish(both, sent[name], score)
    assert step(both, olga, started, "apply").status_code == 200
    assert both.board()[0] == ("eve", 0.45)


PAGES = "/organise/digits/rejudgings"
ALL = {"act": "start", "which": "all", "split": "public", "changed": "scorer", "reason": "the cap was wrong"}


@pytest.fixture
def sent(server: Instance, digits: Competition) -> dict[str, str]:
    """Three scored submissions, by their team's name."""
    return send_three(server)


def start(visitor: Visitor, **values: str) -> str:
    """Start a re-judging. Return its address."""
    answer = visitor.post(PAGES, {**ALL, **values})
    assert answer.status_code == 303, plain_text(answer.text)
    return answer.headers["location"]


def test_a_wrong_field_is_named_and_counting_starts_nothing(server, visitor, sent):
    for fields, words in (
        ({"which": "team", "team": "nobody"}, "team no team of the competition has this name (was nobody)"),
        ({"which": "failure"}, "error_class needs a class of failure"),
        ({"which": "time"}, "received_from needs a beginning, an end or both"),
        ({"which": "time", "received_from": "soon"}, "received_from needs a date and a time, UTC (was soon)"),
        ({"which": "some"}, "which needs one of all, team, failure, time (was some)"),
        ({"split": "secret"}, "split needs public or private (was secret)"),
        ({"changed": "mood"}, "changed needs one of scorer, limits, split, host (was mood)"),
        ({"reason": " "}, "reason is missing"),
    ):
        answer = visitor.post(PAGES, {**ALL, "reason": "kept words", **fields})
        assert (answer.status_code, words in plain_text(answer.text)) == (422, True), fields
        assert "reason" in fields or 'value="kept words"' in answer.text
    for fields, words in (
        ({}, "chooses 3 submissions , whose stored outputs are scored again"),
        ({"which": "team", "team": "ADA"}, "chooses 1 submission , whose stored outputs are scored again"),
        ({"which": "failure", "error_class": "timeout"}, "matches no submission"),
        ({"which": "time", "received_before": "2020-01-01T00:00"}, "matches no submission"),
    ):
        assert words in plain_text(visitor.post(PAGES, {**ALL, **fields, "act": "count"}).text)
    with server.database.read() as session:
        assert session.scalars(select(Rejudging)).all() == []


def test_a_set_is_previewed_and_applied(server: Instance, visitor: Visitor, sent: dict[str, str]) -> None:
    path = start(visitor)
    page = visitor.get(path).text
    assert f'hx-sse:connect="{path}/events"' in page
    assert "0 of 3 submissions ended, 0 of 12 runs done" in plain_text(page)
    assert "Apply" not in page
    for name, score in (("ada", 0.1), ("bob", 0.4), ("eve", 0.45)):
        finish(server, sent[name], score)
    text = plain_text(visitor.get(path).text)
    assert "What applying changes on the public board" in text
    assert "eve 3 → 1 rises 2 0.30000 0.45000 +0.15000" in text
    assert "ada 1 → 3 falls 2 0.50000 0.10000 -0.40000" in text
    assert [team for team, _ in server.board()] == ["ada", "bob", "eve"], "looking changes nothing"
    assert visitor.post(path, {"act": "apply"}).status_code == 422
    assert visitor.post(path, {"act": "apply", "sure": "yes"}).status_code == 303
    text = plain_text(visitor.get(path).text)
    assert "Applied by olga" in text
    assert "eve 3 → 1 rises 2" in text
    assert "Discard" not in text


def test_a_set_is_discarded_with_a_reason(server, visitor, olga, sent):
    path = start(visitor, which="team", team="ada")
    again = visitor.post(PAGES, ALL)
    assert again.status_code == 409
    assert "runs already; apply or discard it first" in plain_text(again.text)
    server.competition("other", organiser=olga)
    assert visitor.get(path.replace("/digits/", "/other/")).status_code == 404
    assert visitor.post(path, {"act": "discard"}).status_code == 422
    assert visitor.post(path, {"act": "discard", "reason": "no need"}).status_code == 303
    assert "Discarded by olga just now . no need" in plain_text(visitor.get(path).text)
    assert "discarded" in plain_text(visitor.get(PAGES).text)


def test_the_live_part_ends_when_every_submission_has(server: Instance, visitor: Visitor, sent: dict[str, str]) -> None:
    path = start(visitor, which="team", team="ada")
    part = visitor.get(f"{path}/live")
    assert "Being scored again" in part.text
    assert "hx-refresh" not in part.headers
    finish(server, sent["ada"], None)
    part = visitor.get(f"{path}/live")
    assert "1 failed" in plain_text(part.text)
    assert part.headers["hx-refresh"] == "true"
    assert "event: end" in visitor.get(f"{path}/events").text
    assert "other than before" in plain_text(visitor.get(path).text)


def test_rejudging_pages_run_the_same_queries_for_any_number(server, visitor, sent):
    counts: dict[str, set[int]] = {"list": set(), "one": set()}
    for names in (["ada"], ["ada", "bob", "eve"]):
        path = start(visitor, **({"which": "team", "team": "ada"} if len(names) == 1 else {}))
        for name in names:
            finish(server, sent[name], 0.2)
        for kind, address in (("list", PAGES), ("one", path)):
            with counted_queries(server.database.engine) as queries:
                assert visitor.get(address).status_code == 200
            counts[kind].add(len(queries))
        visitor.post(path, {"act": "discard", "reason": "again"})
    assert {kind: len(found) for kind, found in counts.items()} == {"list": 1, "one": 1}


def send_three(server: Instance) -> dict[str, str]:
    sent = {}
    for name, score in (("ada", 0.5), ("bob", 0.4), ("eve", 0.3)):
        sent[name] = server.submit(server.participant(name)).json()["id"]
        server.score(sent[name], score)
    return sent


def play(server: Instance) -> tuple[dict[str, str], dict[str, str]]:
    """Return the organiser's headers, and three scored submissions by their team's name."""
    olga = server.organised()
    return olga, send_three(server)
