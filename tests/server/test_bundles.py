"""Published results, and a competition of phases from its file to them."""

import csv
import io
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lethe.client.bundle import COMPETITION, check, read, scores
from lethe.competition.visibility import Visibility
from server.bundles.bundle import PAGES, environment
from server.db import now
from server.models.account import Role
from server.models.competition import CompetitionState
from tests.support.instance import Instance
from tests.support.scores import fetch_bundle, texts

C = "/api/v1/competitions/digits"
HOUR = timedelta(hours=1)
EXTRA = """
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


def test_competition_of_phases_is_played_to_a_late_entry(played: Played, tmp_path: Path) -> None:
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


def test_pictures_of_other_hosts_are_links() -> None:
    html = environment().filters["markdown"]("A prize: ![a mug](https://example.org/mug.png)")
    assert '<a href="https://example.org/mug.png">a mug</a>' in html
    assert "<img" not in html


def wording(*, by: str, weights: dict[str, float], missing: str = "zero") -> str:
    """Return what the first page says of the tasks."""
    tasks = [{"name": name, "title": name.capitalize()} for name in ("faces", "digits", "authors")]
    about = {
        "title": "Three",
        "summary": "",
        "phases": [],
        "made_at": None,
        "opens_at": "2030-01-01T00:00:00+00:00",
        "closes_at": "2030-02-01T00:00:00+00:00",
        "combine": {"by": by, "weights": weights, "missing": missing},
    }
    data = {"tasks": tasks, "scores_verified": True, "lethe": "0.3"}
    template = environment().get_template("index.html")
    html = template.render(page="index.html", pages=PAGES, about=about, data=data, boards=[])
    return " ".join(re.sub(r"<[^>]+>", "", html).split())


def test_combination_is_said_as_it_is() -> None:
    said = wording(by="mean", weights={})
    assert (
        "There are 3 tasks, and a submission was evaluated in those that it was sent to: Faces, Digits, Authors."
        in said
    )
    assert "combines them by their mean; a missing task counts as 0." in said
    said = wording(by="worst", weights={"faces": 2.5}, missing="unranked")
    assert "combines them by the worst of them, weighted: Faces 2.5, Digits 1, Authors 1; a missing task leaves" in said


SEED = 2**80 + 1


@pytest.mark.parametrize(
    ("state", "seed", "published"),
    [
        (CompetitionState.OPEN, SEED, False),
        (CompetitionState.CLOSED, SEED, False),
        (CompetitionState.FINAL, SEED, True),
        (CompetitionState.OPEN, SEED + 1, True),
    ],
)
def test_seeds_are_kept_while_another_competition_has_them(server, tmp_path, state, seed, *, published):
    over = now() - timedelta(hours=1)
    owner = server.account("olga", Role.ORGANISER)
    mine = f"[splits]\nseed = {SEED}"
    server.competition("first", organiser=owner, state=CompetitionState.FINAL, closes_at=over, extra=mine)
    closes_at = None if state == CompetitionState.OPEN else over
    server.competition("copy", state=state, closes_at=closes_at, extra=f"[splits]\nseed = {seed}")
    splits = read(fetch_bundle(server, "first", server.headers(owner), tmp_path), COMPETITION)["splits"]
    assert ("seed" in splits) is published
