"""Lists for organisers and administrators, and exports: whole, with the scores, safe to open."""

import csv
import io
import json
from typing import Any

import pytest

from lethe.competition.visibility import Visibility
from server.admin import exports
from server.models.account import Role
from server.models.competition import Team
from server.models.submission import Fault, Submission
from server.submissions import organiser_list
from tests.support.instance import Instance
from tests.support.scores import add_metric

BASE = "/api/v1/competitions/digits"


def listed(server: Instance, headers: dict[str, str], **wanted: object) -> list[str]:
    answer = server.client.get(f"{BASE}/all-submissions", params=wanted, headers=headers)
    assert answer.status_code == 200, answer.text
    return [row["id"] for row in answer.json()]


def test_submissions_are_found_by_stage_fault_and_team(server: Instance, of_digits: dict[str, str]) -> None:
    ada, bob = (server.submit(server.participant(name)).json()["id"] for name in ("ada", "bob"))
    server.score(ada, 0.5)
    server.fail(bob, Fault.HOST)
    assert listed(server, of_digits, stage="scored") == [ada]
    assert listed(server, of_digits, fault="host") == [bob]
    assert listed(server, of_digits, team="AD") == [ada]
    assert listed(server, of_digits, text=bob) == [bob]
    assert set(listed(server, of_digits)) == {ada, bob}


def test_submissions_come_in_pages_when_asked(server, of_digits, monkeypatch):
    monkeypatch.setattr(organiser_list, "PAGE_SIZE", 1)
    first, second = (server.submit(server.participant(name)).json()["id"] for name in ("ada", "bob"))
    assert [listed(server, of_digits, page=page) for page in (1, 2, 3)] == [[second], [first], []]


def test_unknown_filter_is_refused_by_name(server: Instance, of_digits: dict[str, str]) -> None:
    answer = server.client.get(f"{BASE}/all-submissions", params={"only": "best"}, headers=of_digits)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"].endswith("only")


def test_people_are_organisers_and_ranked_teams(server: Instance, of_digits: dict[str, str]) -> None:
    server.score(server.submit(server.participant("ada")).json()["id"], 0.5)
    server.submit(server.participant("bob"))
    found = server.client.get(f"{BASE}/people", headers=of_digits).json()
    assert found["organisers"] == ["olga"]
    assert [(row["name"], row["members"], row["rank"]) for row in found["teams"]] == [("ada", 1, 1), ("bob", 1, None)]
    assert not found["has_more"]
    beyond = server.client.get(f"{BASE}/people", params={"page": 2}, headers=of_digits).json()
    assert (beyond["teams"], beyond["has_more"]) == ([], False)
    only = server.client.get(f"{BASE}/people", params={"team": "bo"}, headers=of_digits).json()
    assert [row["name"] for row in only["teams"]] == ["bob"]


def test_team_of_that_very_name_is_found_among_any_number(both: Instance) -> None:
    olga = both.account("olga", Role.ORGANISER)
    competition = both.competition(organiser=olga)
    with both.database.write() as session:
        names = ["Z", *(f"a z {number:03}" for number in range(130))]
        teams = [Team(name=name, name_key=name.lower(), leader_id=olga.id) for name in names]
        for team in teams:
            team.competition_id = competition.id
        session.add_all(teams)
    found = both.client.get(f"{BASE}/people", params={"team": "z"}, headers=both.headers(olga)).json()
    assert [row["name"] for row in found["teams"][:2]] == ["Z", "a z 000"]
    assert (len(found["teams"]), found["has_more"]) == (100, True)


def test_accounts_are_found_by_role_and_ban(server: Instance, of_digits: dict[str, str]) -> None:
    adam = server.headers(server.account("adam", Role.ADMINISTRATOR))
    server.participant("ada")
    url = "/api/v1/admin/accounts"
    assert server.client.post(f"{url}/ada/acts", headers=adam, json={"act": "ban", "reason": "spam"}).is_success
    found = {
        query: [row["name"] for row in server.client.get(f"{url}?{query}", headers=adam).json()]
        for query in ("role=organiser", "banned=true", "query=AD")
    }
    assert found == {"role=organiser": ["olga"], "banned=true": ["ada"], "query=AD": ["ada", "adam"]}


def test_audit_actions_are_those_of_the_competition(server: Instance, of_digits: dict[str, str]) -> None:
    server.submit(server.participant("ada"))
    actions = server.client.get(f"{BASE}/audit/actions", headers=of_digits).json()
    assert actions == sorted(actions)
    assert "submission.received" in actions
    assert "account.registered" not in actions


def play(server: Instance) -> tuple[dict[str, str], dict[str, str]]:
    """Return the organiser's headers and the submissions by team, after a close."""
    olga = server.organised()
    sent = {}
    for name, score in (("ada", 0.1 + 0.2), ("bob", 0.25)):
        sent[name] = server.submit(server.participant(name), message="=1+1").json()["id"]
        server.score(sent[name], score)
    server.close(olga)
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
    olga = server.organised()
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
