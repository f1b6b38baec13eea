"""Boards of a competition of several tasks, from the public one to the reveal and the bundle of it."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from lethe.client.bundle import MANIFEST, check, read
from lethe.competition.visibility import Visibility
from server.config import get_settings
from server.models.account import Account, Role
from server.models.competition import Competition, CompetitionState
from server.models.submission import Fault
from server.starter_kit import kit_key
from server.submissions.receipts import sign
from tests.support.instance import Instance
from tests.support.scores import fetch_bundle
from tests.support.tasks import FACES, open_tasks, part_ids, score_parts, send

API = "/api/v1/competitions"
S = CompetitionState
TASKS = ("three--faces", "three--digits", "three--authors")


def states(server: Instance) -> set[str]:
    with server.database.read() as session:
        return set(session.scalars(select(Competition.state)))


def post(server: Instance, path: str, headers: dict[str, str], **json: object) -> Any:
    return server.client.post(f"{API}/{path}", headers=headers, json=json or None)


def sign_again(manifest: dict[str, Any], changed: Path, into: Path) -> None:
    """Vouch for a changed file with the instance's own key, as nobody else could."""
    manifest["files"][changed.name]["sha256"] = hashlib.sha256(changed.read_bytes()).hexdigest()
    body = {name: value for name, value in manifest.items() if name not in ("public_key", "signature")}
    into.write_text(json.dumps(body | {"public_key": manifest["public_key"], "signature": sign(get_settings(), body)}))


def board(server: Instance, **params: str) -> dict[str, Any]:
    answer = server.client.get(f"{API}/three/leaderboard", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def standings(found: dict[str, Any]) -> list[tuple[int | None, str, float]]:
    return [(row["rank"], row["team"], row["score"]) for row in found["rows"] if row["kind"] == "team"]


def test_boards_of_tasks_and_combined(server: Instance, olga: Account) -> None:
    open_tasks(server, olga)
    ada, bob, cid = (server.participant(name) for name in ("ada", "bob", "cid"))
    score_parts(server, send(server, ada).json()["id"], faces=0.1, digits=0.1, authors=0.1)
    score_parts(server, send(server, ada, "digits").json()["id"], digits=0.16)
    score_parts(server, send(server, bob).json()["id"], faces=0.06, digits=0.12, authors=0.15)
    score_parts(server, send(server, cid, "faces").json()["id"], faces=0.18)
    found = board(server)
    assert standings(found) == [(1, "ada", 0.12), (2, "bob", 0.11), (3, "cid", 0.06)]
    ada_row = next(row for row in found["rows"] if row["team"] == "ada")
    assert {name: value["value"] for name, value in ada_row["metrics"].items()} == {
        "faces": 0.1,
        "digits": 0.16,
        "authors": 0.1,
    }
    assert ada_row["entries"] == 2
    assert [column["id"] for column in found["columns"]] == ["faces", "digits", "authors"]
    assert found["oracle"] == {"score": 0.2}
    assert standings(board(server, task="faces")) == [(1, "cid", 0.18), (2, "ada", 0.1), (3, "bob", 0.06)]
    unknown = server.client.get(f"{API}/three/leaderboard", params={"task": "birds"})
    assert unknown.status_code == 404
    assert "its tasks are faces, digits, authors" in unknown.json()["detail"]


def test_the_ladder_hides_the_same_on_both_boards(server: Instance, olga: Account) -> None:
    open_tasks(server, olga, extra='[board]\nmode = "ladder"\nstep = 0.1\n')
    ada = server.participant()
    score_parts(server, send(server, ada).json()["id"], faces=0.31, digits=0.31, authors=0.31)
    score_parts(server, send(server, ada).json()["id"], faces=0.35, digits=0.35, authors=0.35)
    assert standings(board(server)) == [(1, "ada", pytest.approx(0.3))]
    assert standings(board(server, task="faces")) == [(1, "ada", pytest.approx(0.3))]


def test_from_the_close_to_the_reveal_and_its_bundle(both: Instance, tmp_path: Path) -> None:
    organiser = both.account("olga", Role.ORGANISER)
    open_tasks(both, organiser, limits={"final_selections": 1})
    olga = both.headers(organiser)
    ada, bob = (both.participant(name) for name in ("ada", "bob"))
    good, better = (send(both, ada).json()["id"] for _ in range(2))
    score_parts(both, good, faces=0.1, digits=0.1, authors=0.1)
    score_parts(both, better, faces=0.2, digits=0.2)
    theirs = send(both, bob).json()["id"]
    score_parts(both, theirs, faces=0.05, digits=0.05, authors=0.05)
    chosen = both.client.put(f"/api/v1/submissions/{good}/selection", headers=ada)
    assert chosen.status_code == 200
    assert both.client.put(f"/api/v1/submissions/{better}/selection", headers=ada).status_code == 409
    part = part_ids(both, good)["faces"]
    assert both.client.put(f"/api/v1/submissions/{part}/selection", headers=ada).status_code == 409
    assert post(both, "three/close", olga).status_code == 200
    both.tick()
    waiting = both.client.get(f"{API}/three/rescoring", headers=olga).json()
    assert (waiting["frozen"], waiting["waiting_public"]) == (False, 1)
    score_parts(both, better, authors=0.2)
    both.tick()
    again = both.client.get(f"{API}/three/rescoring", headers=olga).json()
    assert (again["frozen"], again["finals"], again["scored"], again["runs_total"]) == (True, 6, 0, 24)
    private = Visibility.PRIVATE
    score_parts(both, good, private, faces=0.11, digits=0.12, authors=0.13)
    score_parts(both, theirs, private, faces=0.3)
    sealed = both.client.get(f"{API}/three/leaderboard", params={"board": "private"}, headers=ada)
    of_task = both.client.get(f"{API}/three--faces/leaderboard", params={"board": "private"}, headers=ada)
    assert (sealed.status_code, of_task.status_code) == (404, 404)
    both.fail(part_ids(both, theirs)["digits"], Fault.PARTICIPANT, visibility=private)
    both.tick()
    failed = both.client.get(f"{API}/three/rescoring", headers=olga).json()["failed"]
    assert [each["submission"] for each in failed] == [part_ids(both, theirs)["digits"]]

    def decide(decision: str) -> Any:
        path = f"{API}/three--digits/finals/{failed[0]['submission']}/decision"
        return both.client.post(path, headers=olga, json={"decision": decision, "reason": "it divides by zero"})

    assert decide("use-next-choice").status_code == 409
    assert decide("exclude").status_code == 200
    score_parts(both, theirs, private, authors=0.3)
    assert states(both) == {S.CLOSED, S.PROVISIONAL}
    both.tick()
    assert states(both) == {S.PROVISIONAL}
    assert post(both, "three/reveal", olga).status_code == 200
    assert states(both) == {S.FINAL}
    assert standings(board(both, board="private")) == [(1, "bob", pytest.approx(0.2)), (2, "ada", pytest.approx(0.12))]
    assert standings(board(both, board="private", task="digits")) == [(1, "ada", 0.12)]
    assert [part["private_score"]["final_score"] for part in both.shown(ada, good)["parts"]] == [0.11, 0.12, 0.13]
    of_faces = {"task": FACES, "format": "jsonl"}
    exported = both.client.get(f"{API}/three/exports/private-leaderboard", headers=olga, params=of_faces)
    rows = [json.loads(line) for line in exported.text.splitlines()]
    assert {row["team"]: row["score"] for row in rows if row["kind"] == "team"} == {"ada": 0.11, "bob": 0.3}
    both.storage.write(kit_key("three--faces"), b"kit of faces")
    kit = both.client.get(f"{API}/three/starter-kit", headers=olga, params={"task": FACES})
    assert kit.content == b"kit of faces"
    unnamed = both.client.get(f"{API}/three/starter-kit", headers=olga)
    assert (unnamed.status_code, unnamed.json()["detail"].endswith("faces, digits, authors")) == (404, True)
    assert both.client.get(f"{API}/three--faces/bundle", headers=olga).status_code == 409, "of all tasks together"
    assert both.client.get(f"{API}/three/bundle", headers=ada).status_code == 403
    check_bundle(fetch_bundle(both, "three", olga, tmp_path), good, standings(board(both, board="private")))


def check_bundle(bundle: Path, submission: str, private: list[tuple[int | None, str, float]]) -> None:
    """Compare a bundle with the private board, and find what is changed in it although its manifest vouches for it."""
    assert check(bundle).differences == []
    (combined,) = (one for one in read(bundle, "boards.json") if (one["task"], one["split"]) == ("", "private"))
    assert standings(combined) == private
    (entry,) = (entry for entry in read(bundle, "entries.json") if entry["id"] == submission)
    parts = {part["task"]: part["scores"]["private"]["final_score"] for part in entry["parts"]}
    assert parts == {"faces": 0.11, "digits": 0.12, "authors": 0.13}
    for name, of_board, told in (("boards.json", True, "rank"), ("entries.json", False, "receipt says")):
        changed = bundle / name
        before = changed.read_text()
        data = json.loads(before)
        if of_board:
            data[0]["rows"][-1]["rank"] = 7
        else:
            data[0]["parts"][0]["scores"]["public"]["final_score"] += 0.01
        changed.write_text(json.dumps(data))
        assert check(bundle).differences == [f"{name} is not what the manifest says"]
        manifest = read(bundle, MANIFEST)
        sign_again(manifest, changed, bundle / MANIFEST)
        assert any(told in sentence for sentence in check(bundle).differences)
        changed.write_text(before)
        sign_again(manifest, changed, bundle / MANIFEST)


def test_private_scores_of_a_task_stay_sealed(server: Instance, olga: Account) -> None:
    open_tasks(server, olga)
    ada = server.participant()
    sent = send(server, ada).json()["id"]
    score_parts(server, sent, faces=0.1, digits=0.1, authors=0.1)
    post(server, "three/close", server.headers(olga))
    server.tick()
    score_parts(server, sent, Visibility.PRIVATE, faces=0.7777, digits=0.7777, authors=0.7777)
    server.tick()
    own = [sent, *part_ids(server, sent).values()]
    paths = [f"/api/v1/submissions/{each}{end}" for each in own for end in ("", "/receipt?split=private", "/metrics")]
    paths += [
        f"{API}/{slug}{end}" for slug in ("three", *TASKS) for end in ("", "/submissions", "/leaderboard", "/finals")
    ]
    paths += [f"{API}/{slug}/leaderboard?board=private" for slug in ("three", *TASKS)]
    for path in paths:
        assert "0.777" not in server.client.get(path, headers=ada).text, path


def test_a_task_is_rejudged_by_itself_and_the_competition_not(server, olga, organiser):
    open_tasks(server, olga)
    sent = send(server, server.participant()).json()["id"]
    score_parts(server, sent, faces=0.1, digits=0.1, authors=0.1)
    asked = {"split": "public", "changed": "host", "reason": "a new host"}
    refused = server.client.post(f"{API}/three/rejudgings", headers=organiser, json=asked)
    assert refused.status_code == 404
    assert "its tasks have one each: three--faces" in refused.json()["detail"]
    begun = server.client.post(f"{API}/three--faces/rejudgings", headers=organiser, json=asked)
    assert begun.status_code == 201, begun.text


def test_a_team_that_lacks_a_task_can_be_left_out(server: Instance, olga: Account) -> None:
    open_tasks(server, olga, extra='[combine]\nby = "worst"\nmissing = "refuse"\n')
    ada, bob = (server.participant(name) for name in ("ada", "bob"))
    score_parts(server, send(server, ada).json()["id"], faces=0.1, digits=0.2, authors=0.3)
    score_parts(server, send(server, bob, "faces").json()["id"], faces=0.3)
    assert standings(board(server)) == [(1, "ada", 0.1)]
