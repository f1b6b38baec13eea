"""Taking part in a competition with tasks is decided for all at once; its pages show what goes to which task."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from server.db import now
from server.evaluations import leases
from server.evaluations.claimed_shard import ShardFailure
from server.models.account import Account, Role
from server.models.submission import Fault, Submission
from server.starter_kit import kit_key
from tests.support.instance import GOOD_CODE, Instance
from tests.support.leases import claim
from tests.support.tasks import make_ready, open_tasks, part_ids, score_parts
from tests.support.web import Visitor, plain_text

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


def test_nobody_takes_part_in_a_task_alone(server, olga, organiser, mail):
    open_tasks(server, olga, extra=APPROVED, text=False)
    ada = server.participant()

    def ask(headers: dict[str, str], method: str, path: str, **body: object) -> Any:
        return server.client.request(method, f"{TASK}/{path}", headers=headers, json=body)

    for refused in (
        change(server, organiser, TASK, participation={"admission": "open"}),
        ask(organiser, "POST", "participants/ada/decision", decision="refuse", reason="a rule"),
        ask(organiser, "POST", "links"),
        ask(organiser, "PATCH", "addresses", add=["ada@example.org"]),
        ask(ada, "POST", "participation/request"),
        ask(ada, "POST", "participation/terms", version=1),
        ask(ada, "POST", "questions", text="Why?"),
    ):
        assert (refused.status_code, "do this to three" in refused.json()["detail"]) == (409, True), refused.text
    page = Visitor(server, "ada").get("/competitions/three--faces/join")
    assert page.headers["location"] == "/competitions/three/join"


@pytest.fixture
def tasks(server: Instance, visitor: Visitor) -> Instance:
    """The competition is open, and ada is logged in."""
    open_tasks(server, server.account("olga", Role.ORGANISER), extra="[combine]\nweights = { faces = 2.0 }\n")
    server.account("ada")
    visitor.log_in("ada")
    return server


def sent(visitor: Visitor, **data: object) -> str:
    """Send code with the page's form. Return the submission's id."""
    token = visitor.token("/competitions/three/submit")
    answer = visitor.client.post(
        "/competitions/three/submit",
        data={"csrf_token": token, "code": GOOD_CODE.decode(), **data},
        files={"file": ("", b"")},
        follow_redirects=False,
    )
    assert answer.status_code == 303, plain_text(answer.text)
    return answer.headers["location"].rpartition("/")[2]


def test_overview_lists_the_tasks(tasks: Instance, visitor: Visitor) -> None:
    page = visitor.get("/competitions/three")
    assert "Faces digits mlp 4 2 Digits digits mlp 4 1 Authors" in plain_text(page.text)
    assert 'href="/competitions/three--faces"' in page.text
    task = visitor.get("/competitions/three--faces").text
    assert "A task of Three tasks" in plain_text(task)
    assert 'href="/competitions/three/submit"' in task
    assert visitor.get("/competitions/three--faces/submit").headers["location"] == "/competitions/three/submit"
    home = visitor.get("/").text
    assert "/competitions/three" in home
    assert "three--faces" not in home


def test_a_submission_shows_each_task(tasks: Instance, visitor: Visitor) -> None:
    one = sent(visitor, tasks=["faces", "authors"])
    own = part_ids(tasks, one)
    assert set(own) == {"faces", "authors"}
    score_parts(tasks, one, faces=0.1234)
    page = visitor.get(f"/submissions/{one}").text
    assert f'href="/submissions/{own["faces"]}"' in page
    read = plain_text(page).lower()
    assert "faces scored 0.1234" in read
    assert "authors queued" in read
    part = visitor.get(f"/submissions/{own['faces']}").text
    assert "The part of a submission to Three tasks that goes to this task" in plain_text(part)
    listed = visitor.get("/competitions/three/submissions").text
    assert f"/submissions/{one}" in listed
    assert own["faces"] not in listed
    assert own["faces"] in visitor.get("/competitions/three--faces/submissions").text


def test_boards_have_a_column_for_each_task(tasks: Instance, visitor: Visitor) -> None:
    score_parts(tasks, sent(visitor), faces=0.12, digits=0.04, authors=0.08)
    board = "/competitions/three/leaderboard"
    page = plain_text(visitor.get(board).text)
    assert "the mean of a team's scores in the tasks, weighted: faces 2, others 1" in page
    assert "A task without a score counts as 0." in page
    assert "0.09" in page
    assert "0.12000 60 %" in plain_text(visitor.get("/competitions/three--faces/leaderboard").text)
    shown = (
        "submissions/compare",
        *(f"leaderboard/{one}" for one in ("charts", "figures/cost.json", "figures/scores.json")),
    )
    for path in shown:
        assert visitor.get(f"/competitions/three/{path}").status_code == 200, path
    for slug in ("three", "three--faces"):
        answer = visitor.get(f"/competitions/{slug}/leaderboard?board=private")
        assert (answer.status_code, "Not revealed yet" in answer.text) == (404, True)
        assert f'href="/competitions/{slug}/leaderboard"' in answer.text, "the tabs of the tasks stay"


def test_the_organiser_sees_the_splits_of_every_task(tasks: Instance, visitor: Visitor) -> None:
    sent(visitor)
    visitor.log_in("olga")
    make_ready(tasks, state="ready")
    page = visitor.get("/organise/three").text
    assert "Faces: Public" in plain_text(page)
    assert "The private split of Authors is prepared" in plain_text(page)
    assert 'href="/organise/three--digits/splits/public"' in page
    for path in ("/organise", "/organise/three/submissions", "/organise/three/teams", "/organise/three/limits"):
        assert visitor.get(path).status_code == 200, path
    for path in ("/organise/three--faces", "/organise/three--faces/submissions", "/organise/three--faces/rejudgings"):
        assert visitor.get(path).status_code == 200, path


def test_part_that_failed_on_the_sample_says_nothing_of_the_quota(tasks: Instance, visitor: Visitor) -> None:
    """Its submission counts all the same, because another part of it has a score."""
    whole = sent(visitor, tasks=["faces", "digits"])
    shard = claim(tasks.database)
    failure = ShardFailure(fault=Fault.PARTICIPANT, error_class="exception", message="it raised", run=0)
    tasks.database.retrying(lambda session: leases.fail(session, shard, failure, runs_done=0))
    own = part_ids(tasks, whole)
    score_parts(tasks, whole, **{next(name for name in own if own[name] != shard.submission_id): 0.1})
    page = plain_text(visitor.get(f"/submissions/{shard.submission_id}").text)
    assert "Error class exception What happened" in page
    assert "not counted" not in page
    assert "Left today 4 of 5" in plain_text(visitor.get("/competitions/three/submit").text)
