"""Exports: whole, with the scores, safe to open, for organisers."""

import csv
import io
import json
from typing import Any

import pytest

from lethe.competition.visibility import Visibility
from server.admin import exports
from server.models.account import Role
from server.models.submission import Submission
from tests.support.instance import Instance
from tests.support.scores import add_metric

BASE = "/api/v1/competitions/digits"


def play(server: Instance) -> tuple[dict[str, str], dict[str, str]]:
    """Return the organiser's headers and the submissions by team, after a close."""
    organiser = server.account("olga", Role.ORGANISER)
    server.competition(organiser=organiser)
    olga, sent = server.headers(organiser), {}
    for name, score in (("ada", 0.1 + 0.2), ("bob", 0.25)):
        sent[name] = server.submit(server.participant(name), message="=1+1").json()["id"]
        server.score(sent[name], score)
    server.client.post(f"{BASE}/close", headers=olga)
    server.tick()
    for name, score in (("ada", 0.0625), ("bob", 0.125)):
        server.score(sent[name], score, visibility=Visibility.PRIVATE)
    server.tick()
    return olga, sent


def export(server: Instance, headers: dict[str, str], table: str, form: str) -> Any:
    return server.client.get(f"{BASE}/exports/{table}", params={"format": form}, headers=headers)


def rows(server: Instance, headers: dict[str, str], table: str, form: str) -> list[dict[str, Any]]:
    text = export(server, headers, table, form).text
    if form == "csv":
        return list(csv.DictReader(io.StringIO(text)))
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_exports_hold_every_score_to_its_last_bit(both: Instance, form: str) -> None:
    olga, sent = play(both)
    board = rows(both, olga, "public-leaderboard", form)
    assert [(row["team"], float(row["score"])) for row in board] == [("ada", 0.3), ("bob", 0.25)], "as the board shows"
    private = rows(both, olga, "private-leaderboard", form)
    assert [(row["team"], float(row["score"])) for row in private] == [("bob", 0.125), ("ada", 0.0625)]
    assert {row["id"] for row in rows(both, olga, "submissions", form)} == set(sent.values())
    evaluations = rows(both, olga, "evaluations", form)
    found = {(row["team"], row["split"], float(row[f"{row['split']}_final_score"])) for row in evaluations}
    expected = {("ada", "public", 0.1 + 0.2), ("bob", "public", 0.25)}
    assert found == expected | {("ada", "private", 0.0625), ("bob", "private", 0.125)}
    actions = [row["action"] for row in rows(both, olga, "audit", form)]
    assert actions[0] == "competition.created"
    assert actions[-1] == "competition.provisional"


def test_metrics_are_exported_beside_their_references(both: Instance) -> None:
    olga, sent = play(both)
    with both.database.write() as session:
        add_metric(session, session.get_one(Submission, sent["ada"]), "klom", 0.1 + 0.2)
    (row,) = rows(both, olga, "metrics", "jsonl")
    assert (row["team"], row["split"], row["metric_id"], row["parameters"]) == ("ada", "public", "klom", {"bins": 10})
    assert (row["value"], row["oracle"], row["original"]) == (0.1 + 0.2, 0.01234, 3.00049)


def test_csv_runs_no_formula(server: Instance) -> None:
    olga, _sent = play(server)
    assert {row["message"] for row in rows(server, olga, "submissions", "csv")} == {"'=1+1"}
    assert {row["message"] for row in rows(server, olga, "submissions", "jsonl")} == {"=1+1"}


def test_unknown_table_or_format_is_refused(server: Instance) -> None:
    organiser = server.account("olga", Role.ORGANISER)
    server.competition(organiser=organiser)
    olga = server.headers(organiser)
    assert export(server, olga, "passwords", "csv").status_code == 422
    assert export(server, olga, "audit", "xml").status_code == 422


def test_lines_come_one_by_one() -> None:
    made = 0

    def endless() -> Any:
        nonlocal made
        while True:
            made += 1
            yield {"number": made}

    stream = exports.as_csv(endless())
    assert [next(stream), next(stream), next(stream)] == ['"number"\r\n', "1\r\n", "2\r\n"]
    assert made == 2
