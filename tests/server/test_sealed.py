"""No private figure reaches anyone but organisers before the reveal: every route, every parameter, every state.

The private scores, epsilons and ratios are numbers that stand nowhere else; every answer to a participant and to
nobody in particular is searched for them, in each form in which a number may be written.
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from itertools import product

import pytest
from fastapi.routing import iter_route_contexts
from sqlalchemy import select

from server.accounts import sessions
from server.main import create_app
from server.models.account import Role
from server.models.competition import Competition, CompetitionState, Team, Visibility
from server.models.evaluation import Evaluation, PrivateScore
from server.models.submission import Fault
from server.web.cookies import SESSION_COOKIE
from tests.support.instance import GOOD_CODE, Instance

BASE = "/api/v1/competitions/digits"
SCORES = {"ada": 0.73519246, "bob": 0.61874253}
SEALED_DETAIL = 4.86371927
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
STREAMS = ("/events", "/live")  # they do not end; what they send is the page's own content


def forms() -> list[str]:
    """Return the sealed numbers as they may be written, cut after their fourth digit."""
    cut = [f"{value:.4f}"[:6] for value in (*SCORES.values(), SEALED_DETAIL)]
    return [*cut, *(f"{float(text) * 100:.2f}"[:5] for text in cut), SEALED_MESSAGE]


def caller(server: Instance, name: str) -> dict[str, str]:
    """Return the headers of one who is logged in, to the API and to the pages."""
    account = server.account(name)
    with server.database.write() as session:
        cookie = sessions.create(session, account, user_agent="test", lifetime=timedelta(days=1))
    return {**server.headers(account), "Cookie": f"{SESSION_COOKIE}={cookie}"}


def play(server: Instance) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Play until the board is provisional. Return the headers of each caller, and the names for addresses."""
    organiser = server.account("olga", Role.ORGANISER)
    server.competition(organiser=organiser, limits={"final_selections": 1})
    callers = {"olga": server.headers(organiser), "nobody": {}}
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
        for score in session.scalars(select(PrivateScore)).all():
            score.details = {"epsilon": SEALED_DETAIL}
        for evaluation in session.scalars(select(Evaluation).where(Evaluation.error_class.is_not(None))).all():
            evaluation.error = {"message": SEALED_MESSAGE}
        team = session.scalars(select(Team).where(Team.name == "ada")).one().id
    names = {"slug": "digits", "submission_id": sent["ada"], "team_id": team, "name": "ada", "team": "ada"}
    return callers, names


def addresses(names: dict[str, str]) -> list[str]:
    """Return the address of every route that can be read, filled with this competition's names."""
    readable = {route.path for route in iter_route_contexts(create_app().routes) if "GET" in (route.methods or ())}
    wanted = {path for path in readable if "static" not in path and not path.endswith(STREAMS)}
    return sorted(re.sub(r"\{(\w+)(?::\w+)?\}", lambda match: names.get(match[1], "x"), path) for path in wanted)


def answers(server: Instance, callers: dict[str, dict[str, str]], names: dict[str, str]) -> Iterator[tuple[str, str]]:
    seen = addresses(names)
    for expected in (f"{BASE}/leaderboard", f"{BASE}/audit", f"/api/v1/submissions/{names['submission_id']}"):
        assert expected in seen
    assert "/competitions/digits/leaderboard" in seen, "pages are walked too"
    for address in seen:
        queries = QUERIES if "leaderboard" in address or "submissions" in address else QUERIES[:2]
        for query, caller in product(queries, ("nobody", "ada", "eve")):
            answer = server.client.get(address + query, headers=callers[caller], follow_redirects=False)
            assert answer.status_code < 500, (address, query, answer.text)
            yield f"{caller} GET {address}{query}", answer.text + str(dict(answer.headers))


def test_nobody_but_organisers_learns_a_private_figure_before_the_reveal(server: Instance) -> None:
    callers, names = play(server)
    private = f"{BASE}/leaderboard?board=private"
    assert "0.7351" in server.client.get(private, headers=callers["olga"]).text, "the search would find it"
    assert server.client.get("/account", headers=callers["ada"], follow_redirects=False).status_code == 200
    for where, text in answers(server, callers, names):
        for sealed in forms():
            assert sealed not in text, where


@pytest.mark.parametrize("state", [s for s in CompetitionState if s not in ("final", "archived")])
def test_private_board_is_not_found_in_any_state_before_the_reveal(server: Instance, state: CompetitionState) -> None:
    callers, _names = play(server)
    with server.database.write() as session:
        session.scalars(select(Competition)).one().state = state.value
    for caller in ("nobody", "ada"):
        answer = server.client.get(f"{BASE}/leaderboard?board=private", headers=callers[caller])
        assert answer.status_code == 404


def test_order_and_count_of_the_public_board_do_not_tell_of_the_private_one(server: Instance) -> None:
    callers, _names = play(server)
    rows = server.client.get(f"{BASE}/leaderboard", headers=callers["eve"]).json()["rows"]
    assert [row["team"] for row in rows] == ["ada", "bob", "eve"]


def test_after_the_reveal_everybody_sees_it(server: Instance) -> None:
    callers, names = play(server)
    body = {"decision": "exclude", "reason": "it fails there"}
    with server.database.read() as session:
        failed = session.scalars(select(Evaluation.submission_id).where(Evaluation.error_class.is_not(None))).one()
    server.client.post(f"{BASE}/finals/{failed}/decision", headers=callers["olga"], json=body)
    server.client.post(f"{BASE}/reveal", headers=callers["olga"])
    assert "0.7351" in server.client.get(f"{BASE}/leaderboard?board=private").text
    mine = server.client.get(f"/api/v1/submissions/{names['submission_id']}", headers=callers["ada"])
    assert "0.7351" in mine.text
    assert str(SEALED_DETAIL)[:6] not in mine.text, "epsilons stay with the organiser"
