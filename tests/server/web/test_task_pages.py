"""Pages of a competition with tasks: what goes to which task, what became of it, the boards."""

import pytest

from server.evaluations import leases
from server.evaluations.claimed_shard import ShardFailure
from server.models.account import Role
from server.models.submission import Fault
from tests.support.instance import GOOD_CODE, Instance
from tests.support.leases import claim
from tests.support.tasks import make_ready, open_tasks, part_ids, score_parts
from tests.support.web import Visitor, plain_text


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
    page = plain_text(visitor.get("/competitions/three/leaderboard").text)
    assert "the mean of a team's scores in the tasks, weighted: faces 2, others 1" in page
    assert "A task without a score counts as 0." in page
    assert "0.09" in page
    assert "0.12000 60 %" in plain_text(visitor.get("/competitions/three--faces/leaderboard").text)
    assert visitor.get("/competitions/three/leaderboard/charts").status_code == 200
    assert visitor.get("/competitions/three/submissions/compare").status_code == 200


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


def test_sealed_private_board_keeps_the_tabs_of_the_tasks(tasks: Instance, visitor: Visitor) -> None:
    for slug in ("three", "three--faces"):
        answer = visitor.get(f"/competitions/{slug}/leaderboard?board=private")
        assert (answer.status_code, "Not revealed yet" in answer.text) == (404, True)
        assert f'href="/competitions/{slug}/leaderboard"' in answer.text
