"""No private figure reaches anyone but organisers before the reveal: every route, every parameter, every state.

The private scores, epsilons and ratios are numbers that stand nowhere else; every answer to a participant and to
nobody in particular is searched for them, in each form in which a number may be written.
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from itertools import product

import pytest
from sqlalchemy import select

from lethe.competition.visibility import Visibility
from server.accounts import sessions
from server.config import get_settings
from server.db import now
from server.metric_results.metric_results import hash_parameters
from server.models.account import Role
from server.models.competition import Competition, CompetitionState, Team
from server.models.evaluation import Evaluation, MetricResult, PrivateScore
from server.models.notification import Delivery, QueuedEmail
from server.models.submission import Fault
from server.notifications import webhooks
from server.web import sse
from server.web.cookies import SESSION_COOKIE
from tests.support.instance import GOOD_CODE, Instance
from tests.support.routes import addresses

BASE = "/api/v1/competitions/digits"
TIMES = re.compile(r"^\w+_seconds\w*(?:\{.*\})? .*$", re.MULTILINE)  # may have any digits
SCORES = {"ada": 0.73519246, "bob": 0.61874253}
SEALED_DETAIL = 4.86371927
REPORT = {"metrics": [{"id": "klom"}], "columns": ["klom"], "visible_to_participants": "all"}
SEALED_METRIC = 5.29318467
SEALED_MESSAGE = "the hidden class 7 is empty"
QUERIES = (
    "",
    "?board=private",
    "?board=private&q=a",
    "?board=private&limit=1&offset=1",
    "?sort=private_score",
    "?sort=-private&order=desc",
    "?q=0.735",
    "?include=private_score&fields=*",
    "?visibility=private&split=private",
    "?format=csv&board=private",
)
ALL_AT_ONCE = "?" + "&".join(query.removeprefix("?") for query in QUERIES if query)  # for routes that declare none
ACTS = frozenset({"POST", "PUT", "PATCH", "DELETE"})


def forms() -> list[str]:
    """Return the sealed numbers as they may be written, cut after their fourth digit."""
    cut = [f"{value:.4f}"[:6] for value in (*SCORES.values(), SEALED_DETAIL, SEALED_METRIC)]
    return [*cut, *(f"{float(text) * 100:.2f}"[:5] for text in cut), SEALED_MESSAGE]


def caller(server: Instance, name: str) -> dict[str, str]:
    """Return the headers of one who is logged in, to the API and to the pages."""
    account = server.confirmed_account(name)
    with server.database.write() as session:
        cookie = sessions.create(session, account, user_agent="test", lifetime=timedelta(days=1))
    return {**server.headers(account), "Cookie": f"{SESSION_COOKIE}={cookie}"}


def play(server: Instance) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Play until the board is provisional. Return the headers of each caller, and the names for addresses."""
    organiser = server.account("olga", Role.ORGANISER)
    server.competition(organiser=organiser, limits={"final_selections": 1})
    callers = {"olga": server.headers(organiser), "nobody": {}}
    hook = {"url": "https://example.org/hook", "events": list(webhooks.EVENTS)}
    assert server.client.post(f"{BASE}/webhooks", headers=callers["olga"], json=hook).status_code == 201
    callers |= {name: caller(server, name) for name in (*SCORES, "eve")}
    sent = {}
    for public, name in ((0.25, "ada"), (0.125, "bob"), (0.0625, "eve")):
        sent[name] = server.submit(callers[name], GOOD_CODE).json()["id"]
        server.score(sent[name], public)
    server.client.post(f"{BASE}/close", headers=callers["olga"])
    server.tick()
    for name, private in SCORES.items():
        server.score(sent[name], private, visibility=Visibility.PRIVATE)
    server.fail(sent["eve"], Fault.PARTICIPANT, visibility=Visibility.PRIVATE)
    with server.database.write() as session:
        competition = session.scalars(select(Competition)).one()
        competition.config = competition.config | {"report": REPORT}
        for score in session.scalars(select(PrivateScore)).all():
            score.details = {"epsilon": SEALED_DETAIL}
            session.add(
                MetricResult(
                    evaluation_id=score.evaluation_id,
                    metric_id="klom",
                    parameters_sha256=hash_parameters({}),
                    value=SEALED_METRIC,
                    metric_version=1,
                    computed_at=now(),
                )
            )
        for evaluation in session.scalars(select(Evaluation).where(Evaluation.error_class.is_not(None))).all():
            evaluation.error = {"message": SEALED_MESSAGE}
        team = session.scalars(select(Team).where(Team.name == "ada")).one().id
    why = {"split": "private", "submissions": [sent["ada"]], "changed": "scorer", "reason": "to be looked at"}
    made = server.client.post(f"{BASE}/rejudgings", headers=callers["olga"], json=why).json()["id"]
    names = {"slug": "digits", "submission_id": sent["ada"], "team_id": team, "name": "ada", "team": "ada"}
    names |= {"rejudging_id": made, "other": sent["bob"], "failed": sent["eve"]}
    return callers, names


def answers(server: Instance, callers: dict[str, dict[str, str]], names: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield every answer to a question, then every answer to an act, errors included."""
    seen = addresses(names, frozenset({"GET"}))
    for expected in (
        f"{BASE}/leaderboard",
        f"{BASE}/audit",
        f"{BASE}/exports/private-leaderboard",
        f"{BASE}/starter-kit",
        f"{BASE}/splits/private/report",
        f"/api/v1/submissions/{names['submission_id']}",
        f"/api/v1/submissions/{names['submission_id']}/receipt",
        f"/submissions/{names['submission_id']}/events",
        f"/organise/digits/rejudgings/{names['rejudging_id']}/live",
        "/competitions/digits/leaderboard",
        "/metrics",
    ):
        assert ("GET", expected) in seen
    for (_get, address), takes in seen.items():
        shows_scores = any(word in address for word in ("leaderboard", "submissions", "compar"))
        queries = QUERIES if shows_scores and takes else ("", ALL_AT_ONCE)
        for query, name in product(queries, ("nobody", "ada", "eve")):
            answer = server.client.get(address + query, headers=callers[name], follow_redirects=False)
            assert answer.status_code < 500, (address, query, answer.text)
            text = TIMES.sub("", answer.text) if address == "/metrics" else answer.text
            yield f"{name} GET {address}{query}", text + str(dict(answer.headers))
    for (method, address), name in product(addresses(names, ACTS), ("nobody", "eve", "ada")):
        answer = server.client.request(method, address, headers=callers[name], json={}, follow_redirects=False)
        assert answer.status_code < 500, (method, address, answer.text)
        yield f"{name} {method} {address}", answer.text + str(dict(answer.headers))


def messages(server: Instance) -> list[str]:
    """Return all that people and programs are sent."""
    with server.database.read() as session:
        mails = [f"{mail.address} {mail.subject} {mail.body}" for mail in session.scalars(select(QueuedEmail))]
        return mails + [str(delivery.payload) for delivery in session.scalars(select(Delivery))]


@pytest.mark.slow
def test_only_organisers_see_private_figures_before_the_reveal(server, monkeypatch):
    for name in ("POLL_INTERVAL_S", "MAX_STREAM_S"):
        monkeypatch.setattr(sse, name, 0.01)  # a stream sends the part as it is, and ends
    callers, names = play(server)
    private = f"{BASE}/leaderboard?board=private"
    seen = server.client.get(private, headers=callers["olga"]).text
    assert "0.7351" in seen, "the search would find it"
    assert "5.2931" in seen, "the search would find it"
    assert server.client.get("/account", headers=callers["ada"], follow_redirects=False).status_code == 200
    for where, text in answers(server, callers, names):
        for sealed in forms():
            assert sealed not in text, where


def test_no_mail_and_no_webhook_holds_a_private_figure(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_SMTP_HOST", "127.0.0.1")
    monkeypatch.setenv("LETHE_MAIL_FROM", "lethe@example.org")
    get_settings.cache_clear()
    callers, names = play(server)
    server.client.post(
        f"{BASE}/finals/{names['failed']}/decision",
        headers=callers["olga"],
        json={"decision": "exclude", "reason": "."},
    )
    assert server.client.post(f"{BASE}/reveal", headers=callers["olga"]).json()["state"] == "final"
    sent = messages(server)
    for event in ("submission.scored", "competition.closed", "competition.revealed", "bob@example.org"):
        assert any(event in text for text in sent), event
    for text, sealed in product(sent, forms()):
        assert sealed not in text


def test_private_board_is_found_after_the_reveal_and_not_before(server: Instance) -> None:
    callers, names = play(server)
    rows = server.client.get(f"{BASE}/leaderboard", headers=callers["eve"]).json()["rows"]
    assert [row["team"] for row in rows] == ["ada", "bob", "eve"], "of the private one it reveals nothing"
    for state in [state for state in CompetitionState if state not in ("final", "archived")] + ["provisional"]:
        with server.database.write() as session:
            session.scalars(select(Competition)).one().state = str(state)
        for caller in ("nobody", "ada"):
            answer = server.client.get(f"{BASE}/leaderboard?board=private", headers=callers[caller])
            assert answer.status_code == 404
    body = {"decision": "exclude", "reason": "it fails there"}
    server.client.post(f"{BASE}/finals/{names['failed']}/decision", headers=callers["olga"], json=body)
    server.client.post(f"{BASE}/reveal", headers=callers["olga"])
    assert "0.7351" in server.client.get(f"{BASE}/leaderboard?board=private").text
    mine = server.client.get(f"/api/v1/submissions/{names['submission_id']}", headers=callers["ada"])
    assert "0.7351" in mine.text
    assert str(SEALED_DETAIL)[:6] not in mine.text, "epsilons stay with the organiser"
