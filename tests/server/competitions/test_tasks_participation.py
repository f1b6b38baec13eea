"""Who takes part, terms, phases and late submissions of a competition with tasks: decided for all tasks at once."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from server.db import now
from server.models.account import Account
from server.models.submission import Submission
from server.starter_kit import kit_key
from tests.support.instance import Instance
from tests.support.tasks import open_tasks, score_parts
from tests.support.web import Visitor

API = "/api/v1/competitions"
WHOLE, TASK = f"{API}/three", f"{API}/three--faces"
APPROVED = '[participation]\nadmission = "approved"\nterms = "Be fair."'


def change(server: Instance, organiser: dict[str, str], url: str = WHOLE, **sections: object) -> Any:
    return server.client.patch(url, headers=organiser, json={**sections, "reason": "decided"})


def test_made_private_its_tasks_are_too(server: Instance, olga: Account, organiser: dict[str, str]) -> None:
    open_tasks(server, olga, text=False)
    stranger = server.participant("stranger")
    private = {"admission": "invited", "private": True}
    assert change(server, organiser, participation=private).status_code == 200
    for path in ("", "/leaderboard", "/participation", "/terms", "/questions", "/pages", "/starter-kit"):
        assert server.client.get(f"{TASK}{path}", headers=stranger).status_code == 404, path
    assert server.client.get("/competitions/three--faces").status_code == 404
    assert server.submit(stranger, slug="three--faces").status_code == 404


def test_other_terms_hold_for_the_data_of_its_tasks(server: Instance, olga: Account, organiser: dict[str, str]) -> None:
    open_tasks(server, olga, text=False)
    server.storage.write(kit_key("three--faces"), b"kit")
    ada = server.participant()
    assert server.client.get(f"{TASK}/starter-kit", headers=ada).status_code == 200
    assert change(server, organiser, participation={"terms": "Be fair."}).status_code == 200
    refused = server.client.get(f"{TASK}/starter-kit", headers=ada)
    assert refused.status_code == 403
    assert "lethe join three --accept 1" in refused.json()["detail"]
    server.client.post(f"{WHOLE}/participation/terms", headers=ada, json={"version": 1})
    assert server.client.get(f"{TASK}/starter-kit", headers=ada).status_code == 200


def test_new_phases_have_boards_in_its_tasks(server: Instance, olga: Account, organiser: dict[str, str]) -> None:
    open_tasks(server, olga, text=False)
    later = (now() + timedelta(hours=1)).isoformat()
    phases = [{"name": "warm-up", "counts": False}, {"name": "real", "begins_at": later, "counts": True}]
    assert change(server, organiser, phases=phases, late={"accepted": True}).status_code == 200
    ada = server.participant()
    score_parts(server, server.submit(ada, slug="three").json()["id"], faces=0.1, digits=0.1)
    with server.database.read() as session:
        assert {(one.phase, one.is_official) for one in session.scalars(select(Submission))} == {("warm-up", False)}
    for url in (WHOLE, TASK):
        assert server.client.get(f"{url}/leaderboard", params={"phase": "late"}).status_code == 200
        rows = server.client.get(f"{url}/leaderboard", params={"phase": "warm-up"}).json()["rows"]
        assert [row["team"] for row in rows if row["kind"] == "team"] == ["ada"]


Act = Callable[[Instance, dict[str, str], dict[str, str]], Any]
ACTS: dict[str, Act] = {
    "settings": lambda server, olga, _: change(server, olga, TASK, participation={"admission": "open"}),
    "refuse": lambda server, olga, _: server.client.post(
        f"{TASK}/participants/ada/decision", headers=olga, json={"decision": "refuse", "reason": "a rule"}
    ),
    "link": lambda server, olga, _: server.client.post(f"{TASK}/links", headers=olga, json={}),
    "addresses": lambda server, olga, _: server.client.patch(
        f"{TASK}/addresses", headers=olga, json={"add": ["ada@example.org"]}
    ),
    "ask": lambda server, _, ada: server.client.post(f"{TASK}/participation/request", headers=ada, json={}),
    "terms": lambda server, _, ada: server.client.post(f"{TASK}/participation/terms", headers=ada, json={"version": 1}),
    "question": lambda server, _, ada: server.client.post(f"{TASK}/questions", headers=ada, json={"text": "Why?"}),
}


@pytest.mark.parametrize("act", ACTS)
def test_nobody_takes_part_in_a_task_alone(server, olga, organiser, mail, act):
    open_tasks(server, olga, extra=APPROVED, text=False)
    refused = ACTS[act](server, organiser, server.participant())
    assert refused.status_code == 409, refused.text
    assert "do this to three" in refused.json()["detail"]


def test_the_page_of_a_task_leads_to_taking_part_in_the_whole(server: Instance, olga: Account) -> None:
    open_tasks(server, olga, extra=APPROVED, text=False)
    server.account("ada")
    visitor = Visitor(server)
    visitor.log_in("ada")
    assert visitor.get("/competitions/three--faces/join").headers["location"] == "/competitions/three/join"


def test_the_charts_of_the_whole_are_shown(server: Instance, olga: Account) -> None:
    open_tasks(server, olga, text=False)
    visitor = Visitor(server)
    for page in ("charts", "figures/cost.json", "figures/scores.json"):
        assert visitor.get(f"/competitions/three/leaderboard/{page}").status_code == 200, page
