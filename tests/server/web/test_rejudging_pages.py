"""The pages of re-judging: choosing a set, its progress, what it would change, applying and discarding."""

import pytest
from sqlalchemy import select

from server.accounts import accounts
from server.models.account import Account
from server.models.competition import Competition
from server.models.evaluation import Rejudging
from tests.support.instance import Instance
from tests.support.rejudging import board, finish
from tests.support.web import Visitor, counted_queries, plain_text

BASE = "/organise/digits/rejudgings"
ALL = {"act": "start", "which": "all", "split": "public", "changed": "scorer", "reason": "the cap was wrong"}


@pytest.fixture
def sent(server: Instance, digits: Competition) -> dict[str, str]:
    """Three scored submissions, by their team's name."""
    found = {}
    for name, score in (("ada", 0.5), ("bob", 0.4), ("eve", 0.3)):
        found[name] = server.submit(server.participant(name)).json()["id"]
        server.score(found[name], score)
    return found


def start(visitor: Visitor, **values: str) -> str:
    """Start a re-judging. Return its address."""
    answer = visitor.post(BASE, {**ALL, **values})
    assert answer.status_code == 303, plain_text(answer.text)
    return answer.headers["location"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "chooses 3 submissions , whose stored outputs are scored again"),
        ({"which": "team", "team": "ADA"}, "chooses 1 submission , whose stored outputs are scored again"),
        ({"which": "failure", "error_class": "timeout"}, "matches no submission"),
        ({"which": "time", "received_before": "2020-01-01T00:00"}, "matches no submission"),
    ],
)
def test_asking_how_many_starts_nothing(server, visitor, sent, *, fields, words):
    assert words in plain_text(visitor.post(BASE, {**ALL, **fields, "act": "count"}).text)
    with server.database.read() as session:
        assert session.scalars(select(Rejudging)).all() == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"which": "team", "team": "nobody"}, "team no team of the competition has this name (was nobody)"),
        ({"which": "failure"}, "error_class needs a class of failure"),
        ({"which": "time"}, "received_from needs a beginning, an end or both"),
        ({"which": "time", "received_from": "soon"}, "received_from needs a date and a time, UTC (was soon)"),
        ({"which": "some"}, "which needs one of all, team, failure, time (was some)"),
        ({"split": "secret"}, "split needs public or private (was secret)"),
        ({"changed": "mood"}, "changed needs one of scorer, limits, split, host (was mood)"),
        ({"reason": " "}, "reason is missing"),
    ],
)
def test_a_wrong_field_is_named_and_the_form_is_kept(visitor, sent, *, fields, words):
    answer = visitor.post(BASE, {**ALL, "reason": "kept words", **fields})
    assert answer.status_code == 422
    assert words in plain_text(answer.text)
    assert "reason" in fields or 'value="kept words"' in answer.text


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
    assert [team for team, _ in board(server)] == ["ada", "bob", "eve"], "looking changes nothing"
    assert visitor.post(path, {"act": "apply"}).status_code == 422
    assert visitor.post(path, {"act": "apply", "sure": "yes"}).status_code == 303
    text = plain_text(visitor.get(path).text)
    assert "Applied by olga" in text
    assert "eve 3 → 1 rises 2" in text
    assert "Discard" not in text


def test_a_set_is_discarded_with_a_reason(server: Instance, visitor: Visitor, sent: dict[str, str]) -> None:
    path = start(visitor, which="team", team="ada")
    assert visitor.post(path, {"act": "discard"}).status_code == 422
    assert visitor.post(path, {"act": "discard", "reason": "no need"}).status_code == 303
    assert "Discarded by olga just now . no need" in plain_text(visitor.get(path).text)
    assert "discarded" in plain_text(visitor.get(BASE).text)


def test_a_second_set_on_the_same_split_is_refused(visitor: Visitor, sent: dict[str, str]) -> None:
    start(visitor)
    answer = visitor.post(BASE, ALL)
    assert answer.status_code == 409
    assert "runs already; apply or discard it first" in plain_text(answer.text)


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


def test_another_competition_s_re_judging_is_not_found(server, visitor, sent, digits):
    path = start(visitor)
    server.competition("other", organiser=owner(server))
    assert visitor.get(path.replace("/digits/", "/other/")).status_code == 404


def owner(server: Instance) -> Account:
    with server.database.read() as session:
        return accounts.find(session, "olga")


def test_rejudging_pages_run_the_same_queries_for_any_number(server, visitor, sent):
    counts: dict[str, set[int]] = {"list": set(), "one": set()}
    for names in (["ada"], ["ada", "bob", "eve"]):
        path = start(visitor, **({"which": "team", "team": "ada"} if len(names) == 1 else {}))
        for name in names:
            finish(server, sent[name], 0.2)
        for kind, address in (("list", BASE), ("one", path)):
            with counted_queries(server.database.engine) as queries:
                assert visitor.get(address).status_code == 200
            counts[kind].add(len(queries))
        visitor.post(path, {"act": "discard", "reason": "again"})
    assert {kind: len(found) for kind, found in counts.items()} == {"list": 1, "one": 1}
