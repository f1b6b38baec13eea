"""An invite-only competition from its file to a late entry after the reveal: links, terms, phases, a question."""

import csv
import io
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lethe.client.bundle import check, read, scores
from lethe.competition.visibility import Visibility
from server.db import now
from server.models.account import Role
from tests.support.bundles import fetch_bundle, texts
from tests.support.instance import Instance

C = "/api/v1/competitions/digits"
HOUR = timedelta(hours=1)
EXTRA = """
[participation]
admission = "invited"
private = true
terms = "Publish your code."
[[phases]]
name = "practice"
counts = false
submissions_per_day = 1
[[phases]]
name = "final"
begins_at = {final}
submissions_total = 2
[late]
accepted = true
[pages]
prizes = "A mug."
"""


class Played:
    """The competition as its organiser and its teams ask for it."""

    def __init__(self, server: Instance) -> None:
        self.server = server
        owner = server.account("olga", Role.ORGANISER)
        server.competition(organiser=owner, extra=EXTRA.format(final=(now() + HOUR).isoformat()))
        self.organiser = server.headers(owner)
        self.teams = {name: server.participant(name) for name in ("ada", "bob")}

    def organise(self, method: str, path: str, **body: Any) -> Any:
        answer = self.server.client.request(method, f"{C}{path}", headers=self.organiser, json=body)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    def join(self, name: str, token: str) -> None:
        who = self.teams[name]
        assert self.server.client.get(C, headers=who).status_code == 404
        joined = self.server.client.post(f"{C}/participation/join", headers=who, json={"token": token}).json()
        assert (joined["state"], joined["may_take_part"]) == ("admitted", False)
        accepted = self.server.client.post(f"{C}/participation/terms", headers=who, json={"version": 1})
        assert accepted.json()["may_take_part"]

    def scored(self, name: str, value: float) -> dict[str, Any]:
        sent = self.server.submit(self.teams[name])
        assert sent.status_code == 201, sent.text
        self.server.score(sent.json()["id"], value)
        return dict(sent.json())

    def board(self, **asked: str) -> dict[str, float]:
        rows = self.server.client.get(f"{C}/leaderboard", headers=self.teams["ada"], params=asked).json()["rows"]
        return {row["team"]: row["score"] for row in rows}


@pytest.fixture
def played(both: Instance) -> Played:
    return Played(both)


def test_an_invited_competition_is_played_to_a_late_entry(played: Played, tmp_path: Path) -> None:
    token = played.organise("POST", "/links", uses=2)["token"]
    for name in played.teams:
        played.join(name, token)
    assert played.scored("ada", 0.9)["phase"] == "practice"
    assert played.server.submit(played.teams["ada"]).status_code == 429
    asked = played.server.client.post(
        f"{C}/questions", headers=played.teams["ada"], json={"text": "Are ensembles allowed?"}
    ).json()
    played.organise("PUT", f"/questions/{asked['id']}/answer", answer="They are.", to_all=True)
    (seen,) = played.server.client.get(f"{C}/questions", headers=played.teams["bob"]).json()
    assert (seen["answer"], seen["is_mine"]) == ("They are.", False)
    final = [
        {"name": "practice", "counts": False},
        {"name": "final", "begins_at": (now() - HOUR).isoformat(), "submissions_total": 2},
    ]
    played.organise("PATCH", "", phases=final, reason="begins earlier")
    finals = {name: played.scored(name, score)["id"] for name, score in (("ada", 0.1), ("bob", 0.2))}
    played.organise("POST", "/close", reason="over")
    late = played.scored("ada", 0.8)
    assert (late["phase"], late["is_official"]) == ("late", False)
    played.server.tick()
    for name, score in (("ada", 0.4), ("bob", 0.3)):
        played.server.score(finals[name], score, visibility=Visibility.PRIVATE)
    played.server.tick()
    played.organise("POST", "/reveal", reason="done")
    assert played.board() == {"ada": 0.1, "bob": 0.2}
    assert played.board(board="private") == {"ada": 0.4, "bob": 0.3}
    assert played.board(phase="practice") == {"ada": 0.9}
    assert played.board(phase="late") == {"ada": 0.8}
    assert played.scored("bob", 0.7)["phase"] == "late"
    assert played.server.client.get(f"{C}/leaderboard").status_code == 404  # private still
    assert played.server.client.get(f"{C}/pages/prizes", headers=played.teams["bob"]).json()["text"] == "A mug."
    publish_results(played, finals, tmp_path)


def publish_results(played: Played, finals: dict[str, str], folder: Path) -> None:
    """Export the boards, then make a bundle of what everybody may see and of the code that a team published."""
    server, headers = played.server, played.organiser
    for phase, expected in (("practice", {"ada": "0.9"}), ("late", {"ada": "0.8", "bob": "0.7"})):
        text = server.client.get(f"{C}/exports/public-leaderboard", headers=headers, params={"phase": phase}).text
        rows = [row for row in csv.DictReader(io.StringIO(text)) if row["kind"] == "team"]
        assert {row["team"]: row["score"] for row in rows} == expected
        assert {row["phase"] for row in rows} == {phase}
    for refused, status in (("private-leaderboard?phase=late", 422), ("public-leaderboard?phase=no", 404)):
        assert server.client.get(f"{C}/exports/{refused}", headers=headers).status_code == status
    assert server.client.put(f"/api/v1/submissions/{finals['bob']}/publication", headers=headers).status_code == 404
    allowed = server.client.put(f"/api/v1/submissions/{finals['ada']}/publication", headers=played.teams["ada"])
    assert allowed.json()["publish_code"]
    bundle = fetch_bundle(server, "digits", headers, folder)
    found = check(bundle)
    assert (found.differences, found.receipts) == ([], found.scores)
    entries = {entry["id"]: entry for entry in read(bundle, "entries.json")}
    assert [entry["id"] for entry in entries.values() if entry["code"]] == [finals["ada"]]
    assert {entry["phase"] for entry in entries.values()} == {"practice", "final", "late"}
    receipts = [read(bundle, score["receipt"]) for *_, score in scores(list(entries.values()))]
    assert {receipt["submission"]["phase"] for receipt in receipts} == {"practice", "final", "late"}
    boards = {board["phase"] or board["split"]: board["rows"] for board in read(bundle, "boards.json")}
    assert {row["team"]: row["score"] for row in boards["late"] if row["kind"] == "team"} == {"ada": 0.8, "bob": 0.7}
    text = texts(bundle)
    assert "They are." in text
    assert "@example" not in text
    assert "seed" not in read(bundle, "competition.json")["splits"], "late submissions are still taken"
    played.organise("POST", "/archive", reason="over for good")
    (folder / "again").mkdir()
    again = fetch_bundle(server, "digits", headers, folder / "again")
    assert isinstance(read(again, "competition.json")["splits"]["seed"], int)
    (folder / "third").mkdir()
    third = fetch_bundle(server, "digits", headers, folder / "third", seeds=False)
    assert "seed" not in read(third, "competition.json")["splits"]
