"""Three tasks, two of images and one of text, and eight teams, from the file to the private leaderboard."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from lethe.client.bundle import MANIFEST, check, read
from lethe.competition.visibility import Visibility
from server.config import get_settings
from server.models.account import Role
from server.models.competition import CompetitionState
from server.models.submission import Fault
from server.starter_kit import kit_key
from server.submissions.receipts import sign
from tests.support.bundles import fetch_bundle
from tests.support.instance import GOOD_CODE, Instance
from tests.support.tasks import AUTHORS, DIGITS, FACES, make_ready, part_ids, score_parts, tasks_toml

API = "/api/v1/competitions"
TEAMS = ("ada", "bob", "cyd", "dan", "eve", "fay", "gus", "hal")
HARMONIC = '[combine]\nby = "harmonic-mean"\nweights = { authors = 2.0 }\n'

# Scores in faces, digits, authors; None: not sent to this task, or failed in it.
PUBLIC: dict[str, tuple[float | None, float | None, float | None]] = {
    "ada": (0.10, 0.20, 0.40),
    "bob": (0.20, 0.20, 0.20),
    "cyd": (0.15, 0.30, 0.10),
    "dan": (0.40, 0.40, 0.05),
    "eve": (0.12, 0.12, 0.12),
    "fay": (0.50, None, None),
    "gus": (0.30, 0.10, None),
    "hal": (0.08, 0.09, 0.40),
}
PRIVATE = {
    "ada": (0.12, 0.18, 0.30),
    "bob": (0.20, 0.20, 0.20),
    "cyd": (0.10, 0.10, 0.10),
    "dan": (0.40, 0.40, 0.20),
    "eve": (0.05, 0.05, 0.05),
    "fay": (0.60, None, None),
    "gus": (0.30, 0.30, None),
    "hal": (0.10, 0.10, 0.40),
}


def named(scores: tuple[float | None, ...]) -> dict[str, float]:
    pairs = zip((FACES, DIGITS, AUTHORS), scores, strict=True)
    return {task: score for task, score in pairs if score is not None}


def harmonic(faces: float, digits: float, authors: float) -> float:
    return 4 / (1 / faces + 1 / digits + 2 / authors)


def lines(server: Instance, **params: str) -> list[tuple[int, str, float]]:
    answer = server.client.get(f"{API}/three/leaderboard", params=params)
    assert answer.status_code == 200, answer.text
    rows: list[dict[str, Any]] = answer.json()["rows"]
    return [(row["rank"], row["team"], row["score"]) for row in rows if row["kind"] == "team"]


def expected(scores: dict[str, tuple[float | None, ...]], *, digits: int | None) -> list[tuple[int, str, object]]:
    full = {team: harmonic(*own) for team, own in scores.items() if None not in own}  # type: ignore[arg-type]
    best_first = sorted(full, key=lambda team: -full[team])
    places = [
        (rank, team, pytest.approx(full[team], abs=6e-6 if digits else 1e-12))
        for rank, team in enumerate(best_first, 1)
    ]
    return [*places, *((len(full) + 1, team, 0.0) for team in scores if None in scores[team])]


def test_three_tasks_and_eight_teams_to_the_private_board(server: Instance, tmp_path: Path) -> None:
    olga = server.headers(server.account("olga", Role.ORGANISER))
    made = server.client.post(API, headers=olga, content=tasks_toml(extra=HARMONIC, limits={"final_selections": 1}))
    assert made.status_code == 201, made.text
    assert server.client.post(f"{API}/three/prepare", headers=olga).status_code == 202
    make_ready(server, state=CompetitionState.READY)
    server.tick()
    assert server.client.get(f"{API}/three").json()["state"] == "open"
    teams = {team: server.participant(team) for team in TEAMS}
    finals: dict[str, str] = {}
    for team, headers in teams.items():
        scores = named(PUBLIC[team])
        answer = server.client.post(
            f"{API}/three/submissions",
            headers=headers,
            files={"file": ("submission.py", GOOD_CODE)},
            data={"tasks": "" if team == "gus" else ",".join(scores)},
        )
        assert answer.status_code == 201, answer.text
        finals[team] = answer.json()["id"]
        score_parts(server, finals[team], **scores)
    server.fail(part_ids(server, finals["gus"])[AUTHORS], Fault.PARTICIPANT)
    # ada sends a better one, and chooses the first
    later = server.submit(teams["ada"], slug="three").json()["id"]
    score_parts(server, later, faces=0.11, digits=0.21, authors=0.41)
    public = PUBLIC | {"ada": (0.11, 0.21, 0.41)}
    assert server.client.put(f"/api/v1/submissions/{finals['ada']}/selection", headers=teams["ada"]).status_code == 200
    assert lines(server) == expected(public, digits=5)
    assert [team for _, team, _ in lines(server, task=FACES)][:3] == ["fay", "dan", "gus"]
    assert [team for _, team, _ in lines(server, task=AUTHORS)] == ["ada", "hal", "bob", "eve", "cyd", "dan"]
    assert server.client.post(f"{API}/three/close", headers=olga).status_code == 200
    server.tick()
    progress = server.client.get(f"{API}/three/rescoring", headers=olga).json()
    assert (progress["frozen"], progress["finals"]) == (True, 6 * 3 + 1 + 2)
    for team, submission in finals.items():
        score_parts(server, submission, Visibility.PRIVATE, **named(PRIVATE[team]))
    server.tick()
    sealed = server.client.get(f"{API}/three/leaderboard", params={"board": "private"})
    assert sealed.status_code == 404
    assert server.client.post(f"{API}/three/reveal", headers=olga).status_code == 200
    assert lines(server, board="private") == expected(PRIVATE, digits=None)
    assert lines(server, board="private", task=DIGITS)[0] == (1, "dan", 0.40)
    own = server.client.get(f"/api/v1/submissions/{finals['hal']}", headers=teams["hal"]).json()
    assert [part["private_score"]["final_score"] for part in own["parts"]] == [0.10, 0.10, 0.40]
    assert own["selected"]
    of_task = server.client.get(
        f"{API}/three/exports/private-leaderboard", headers=olga, params={"task": FACES, "format": "jsonl"}
    )
    rows = [json.loads(line) for line in of_task.text.splitlines()]
    best = {row["team"]: row["score"] for row in rows if row["kind"] == "team"}
    assert best == {team: scores[0] for team, scores in PRIVATE.items()}
    server.storage.write(kit_key("three--faces"), b"kit of faces")
    kit = server.client.get(f"{API}/three/starter-kit", headers=olga, params={"task": FACES})
    assert kit.content == b"kit of faces"
    unnamed = server.client.get(f"{API}/three/starter-kit", headers=olga)
    assert (unnamed.status_code, unnamed.json()["detail"].endswith("faces, digits, authors")) == (404, True)
    path = f"{API}/three/bundle"
    assert server.client.get(f"{API}/three--faces/bundle", headers=olga).status_code == 409, "of all tasks together"
    assert server.client.get(path, headers=teams["hal"]).status_code == 403
    bundle = fetch_bundle(server, "three", olga, tmp_path)
    assert check(bundle).differences == []
    combined = next(
        board for board in read(bundle, "boards.json") if (board["task"], board["split"]) == ("", "private")
    )
    assert [(row["rank"], row["team"], row["score"]) for row in combined["rows"] if row["kind"] == "team"] == lines(
        server, board="private"
    )
    (entry,) = (entry for entry in read(bundle, "entries.json") if entry["id"] == finals["hal"])
    private = {part["task"]: part["scores"]["private"]["final_score"] for part in entry["parts"]}
    assert private == named(PRIVATE["hal"])
    for name, of_board, told in (("boards.json", True, "rank"), ("entries.json", False, "receipt says")):
        changed = bundle / name
        before = changed.read_text()
        data = json.loads(before)
        if of_board:
            data[0]["rows"][-1]["rank"] = 1
        else:
            data[0]["parts"][0]["scores"]["public"]["final_score"] += 0.01
        changed.write_text(json.dumps(data))
        assert check(bundle).differences == [f"{name} is not what the manifest says"]
        manifest = read(bundle, MANIFEST)
        sign_again(manifest, changed, bundle / MANIFEST)
        assert any(told in sentence for sentence in check(bundle).differences)
        changed.write_text(before)
        sign_again(manifest, changed, bundle / MANIFEST)


def sign_again(manifest: dict[str, Any], changed: Path, into: Path) -> None:
    """Vouch for a changed file with the instance's own key, as nobody else could."""
    manifest["files"][changed.name]["sha256"] = hashlib.sha256(changed.read_bytes()).hexdigest()
    body = {name: value for name, value in manifest.items() if name not in ("public_key", "signature")}
    into.write_text(json.dumps(body | {"public_key": manifest["public_key"], "signature": sign(get_settings(), body)}))
