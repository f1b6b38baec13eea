"""What organisers change, list and export: a preview is what is then done, an export is whole and safe to open."""

import csv
import io
import json
from datetime import timedelta
from itertools import cycle
from typing import Any

import pytest
from sqlalchemy import func, select

from lethe.competition.visibility import Visibility
from server.admin import exports
from server.competitions import competitions
from server.db import now
from server.models.account import AuditEvent, Role
from server.models.competition import Competition, CompetitionState, Split, Team
from server.models.evaluation import Evaluation, PublicScore
from server.models.participation import CompetitionText
from server.models.submission import Fault, Submission
from server.submissions import baselines, organiser_list
from tests.support.instance import Instance, competition_toml
from tests.support.scores import add_metric

DIGITS = "/api/v1/competitions/digits"
SOON = now() + timedelta(hours=12)
LATER = (now() + timedelta(days=40)).replace(microsecond=0).isoformat()
CHANGES: list[dict[str, Any]] = [
    {"title": "Other digits", "summary": "Fewer", "description": "*Six*"},
    {"closes_at": LATER},
    {"limits": {"submissions_per_day": 1, "team_size": 2}},
    {"participation": {"terms": "Be fair."}, "pages": {"faq": "None."}},
    {"phases": [{"name": "all"}], "late": {"accepted": True}},
    {"title": "All at once", "closes_at": LATER, "limits": {"memory_mib": 999}, "pages": {"rules": "Run."}},
]


def stored(server: Instance) -> list[Any]:
    """Return whatever a change may touch."""
    with server.database.read() as session:
        row = session.scalars(select(Competition).where(Competition.slug == "digits")).one()
        counts = [session.scalar(select(func.count()).select_from(table)) for table in (AuditEvent, CompetitionText)]
        return [row.title, row.summary, row.closes_at, row.state, row.config, row.source, *counts]


def patched(server: Instance, headers: dict[str, str], **body: Any) -> dict[str, Any]:
    answer = server.client.patch(DIGITS, headers=headers, json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize(("body", "state"), list(zip(CHANGES, cycle([CompetitionState.OPEN, CompetitionState.CLOSED]))))
def test_preview_says_what_is_then_done(both: Instance, body: dict[str, Any], state: CompetitionState) -> None:
    owner, ada = both.account("olga", Role.ORGANISER), both.participant("ada")
    both.competition(organiser=owner, limits={"submissions_per_day": 5})
    olga = both.headers(owner)
    for _ in range(2):
        both.submit(ada)
    if state == CompetitionState.CLOSED:
        both.client.post(f"{DIGITS}/close", headers=olga)
    before = stored(both)
    seen = patched(both, olga, **body, preview=True)
    assert stored(both) == before
    done = patched(both, olga, **body, reason="asked for")
    assert (seen["applied"], done["applied"]) == (False, True)
    affects = ("changed", "over_daily_quota", "over_total_quota", "too_large", "too_many_finals", "unfinished")
    assert {name: seen[name] for name in affects} == {name: done[name] for name in affects}
    assert {name.partition(".")[0] for name in done["changed"]} == set(body)
    assert stored(both) != before
    assert done["state"] == ("open" if "closes_at" in body else state)


def test_draft_is_replaced_as_it_was_previewed(server: Instance) -> None:
    olga = server.organised(state=CompetitionState.DRAFT)
    before = stored(server)
    text = competition_toml().replace("n_models = 4", "n_models = 6")
    seen = patched(server, olga, file=text, preview=True)
    assert (seen["changed"]["n_models"], stored(server)) == ([4, 6], before)
    assert "splits.seed" not in seen["changed"], "another one is drawn, and nobody is shown it"
    assert patched(server, olga, file=text)["changed"] == seen["changed"]
    assert patched(server, olga, file=text)["changed"] == {}


@pytest.mark.parametrize(
    ("old", "new", "trains"),
    [
        ("n_models = 4", "n_models = 6", True),
        ("[network]", f"[splits]\nseed = 0x{2**100:X}\n[network]", True),
        ("[network]", '[report]\nmetrics = ["umia"]\n[ranking]\nby = ["score", "umia"]\n[network]', False),
    ],
)
def test_prepared_competition_takes_another_file_until_it_opens(server, old, new, trains):
    owner = server.account("olga", Role.ORGANISER)
    competition = server.competition(organiser=owner, state=CompetitionState.READY, opens_at=SOON)
    olga, before = server.headers(owner), stored(server)
    text = competition_toml().replace(old, new)
    assert patched(server, olga, file=text, preview=True)["trains_again"] is trains
    assert stored(server) == before
    done = patched(server, olga, file=text)
    assert (done["state"], done["trains_again"]) == ("draft", trains)
    with server.database.read() as session:
        splits = list(competitions.splits(session, session.get_one(Competition, competition.id)))
        assert {(split.state, split.oracle, split.manifest_sha256) for split in splits} == {("pending", None, None)}


def test_file_stays_from_the_hour_of_the_opening_and_of_a_cell(server: Instance) -> None:
    owner = server.account("olga", Role.ORGANISER)
    hour_has_come = server.competition(organiser=owner, state=CompetitionState.READY)
    body, olga = {"file": competition_toml()}, server.headers(owner)
    assert server.client.patch(DIGITS, headers=olga, json=body).status_code == 409
    with server.database.write() as session:
        cell = session.get_one(Competition, hour_has_come.id)
        cell.opens_at, cell.cell_key = SOON, "a"
    assert server.client.patch(DIGITS, headers=olga, json=body).status_code == 409


def test_reference_lines_are_submitted_again_after_another_file(both: Instance) -> None:
    lines = '[report]\nbaselines = ["finetune", "scrub"]\n'
    olga = both.organised(state=CompetitionState.READY, opens_at=SOON, extra=lines)
    assert baselines.submit_missing(both.database, both.storage, at=now()) == 2
    with both.database.read() as session:
        scored = session.scalars(select(Submission.id)).first()
    both.score(str(scored), 0.5)
    text = competition_toml(extra=lines)
    before = stored(both)
    patched(both, olga, file=text, preview=True)
    assert stored(both) == before
    with both.database.read() as session:
        assert session.scalar(select(func.count()).select_from(PublicScore)) == 1
    patched(both, olga, file=text)
    with both.database.write() as session:
        rows = [session.scalar(select(func.count()).select_from(table)) for table in (Submission, Evaluation, Team)]
        assert (rows, session.scalar(select(func.count()).select_from(PublicScore))) == ([0, 0, 0], 0)
        session.scalars(select(Competition)).one().state = CompetitionState.READY.value
    assert baselines.submit_missing(both.database, both.storage, at=now()) == 2


def test_another_file_ends_other_versions_of_splits(server: Instance) -> None:
    owner = server.account("olga", Role.ORGANISER)
    competition = server.competition(organiser=owner, state=CompetitionState.READY, opens_at=SOON)
    with server.database.write() as session:
        public = competitions.get_split(session, session.get_one(Competition, competition.id), Visibility.PUBLIC)
        public.dataset = {"name": "digits", "options": {"corrected": 1}}
        session.add(Split(competition_id=competition.id, visibility="private", version=2, is_current=False))
    assert patched(server, server.headers(owner), file=competition_toml())["trains_again"], "the corrected data is left"
    with server.database.read() as session:
        splits = session.scalars(select(Split)).all()
        assert sorted((split.visibility, split.version, split.dataset) for split in splits) == [
            ("private", 1, None),
            ("public", 1, None),
        ]


def test_refused_change_leaves_everything(server: Instance) -> None:
    olga = server.organised()
    before = stored(server)
    refused: list[tuple[dict[str, Any], int, str]] = [
        ({"title": "New"}, 422, "A reason is needed"),
        ({"reason": "x"}, 422, "Name what is to change: title, summary"),
        ({"file": "", "title": "New"}, 422, "leave out title"),
        ({"n_models": 8, "reason": "x"}, 422, "n_models"),
        ({"title": "New", "limits": {"memory_mib": "much"}, "reason": "x"}, 422, "limits.memory_mib"),
        ({"limits": {"submissions_per_day": 0}, "reason": "x"}, 422, "limits.submissions_per_day"),
        ({"limits": {"unknown": 1}, "reason": "x"}, 422, "limits.unknown"),
        ({"closes_at": "2001-01-01T00:00:00Z", "title": "New", "reason": "x"}, 422, "must lie in the future"),
        ({"closes_at": "2999-01-01T00:00:00", "reason": "x"}, 422, "closes_at"),
        ({"participation": {"confirmed_email": True}, "title": "New", "reason": "x"}, 409, "sends no e-mail"),
        ({"participation": {"private": True}, "reason": "x"}, 422, "private needs admission"),
        ({"file": competition_toml()}, 409, "can no longer be replaced"),
    ]
    for body, status, said in refused:
        for preview in (False, True):
            if preview and "reason" in said:
                continue  # a preview needs none
            answer = server.client.patch(DIGITS, headers=olga, json={**body, "preview": preview})
            assert (answer.status_code, said in answer.text) == (status, True), (body, answer.text)
            assert stored(server) == before


BASE = "/api/v1/competitions/digits"


def listed(server: Instance, headers: dict[str, str], **wanted: object) -> list[str]:
    answer = server.client.get(f"{BASE}/all-submissions", params=wanted, headers=headers)
    assert answer.status_code == 200, answer.text
    return [row["id"] for row in answer.json()]


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
    submissions = rows(both, olga, "submissions", form)
    assert {row["id"] for row in submissions} == set(sent.values())
    assert {row["message"] for row in submissions} == {"'=1+1" if form == "csv" else "=1+1"}, "it runs no formula"
    evaluations = rows(both, olga, "evaluations", form)
    found = {(row["team"], row["split"], float(row[f"{row['split']}_final_score"])) for row in evaluations}
    expected = {("ada", "public", 0.1 + 0.2), ("bob", "public", 0.25)}
    assert found == expected | {("ada", "private", 0.0625), ("bob", "private", 0.125)}
    actions = [row["action"] for row in rows(both, olga, "audit", form)]
    assert (actions[0], actions[-1]) == ("competition.created", "competition.provisional")
    with both.database.write() as session:
        add_metric(session, session.get_one(Submission, sent["ada"]), "klom", 0.1 + 0.2)
    (row,) = rows(both, olga, "metrics", form)
    parameters = json.dumps({"bins": 10}) if form == "csv" else {"bins": 10}
    assert (row["team"], row["split"], row["metric_id"], row["parameters"]) == ("ada", "public", "klom", parameters)
    assert [float(row[name]) for name in ("value", "oracle", "original")] == [0.1 + 0.2, 0.01234, 3.00049]
    assert export(both, olga, "passwords", form).status_code == 422
    assert export(both, olga, "audit", "xml").status_code == 422


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


def test_submissions_are_found_by_what_they_are_and_come_in_pages(server, of_digits, monkeypatch):
    ada, bob = (server.submit(server.participant(name)).json()["id"] for name in ("ada", "bob"))
    server.score(ada, 0.5)
    server.fail(bob, Fault.HOST)
    assert listed(server, of_digits, stage="scored") == listed(server, of_digits, team="AD") == [ada]
    assert listed(server, of_digits, fault="host") == listed(server, of_digits, text=bob) == [bob]
    assert set(listed(server, of_digits)) == {ada, bob}
    wrong = server.client.get(f"{BASE}/all-submissions", params={"only": "best"}, headers=of_digits)
    assert wrong.status_code == 422
    assert wrong.json()["errors"][0]["field"].endswith("only")
    monkeypatch.setattr(organiser_list, "PAGE_SIZE", 1)
    assert [listed(server, of_digits, page=page) for page in (1, 2, 3)] == [[bob], [ada], []]
    actions = server.client.get(f"{BASE}/audit/actions", headers=of_digits).json()
    assert actions == sorted(actions)
    assert "submission.received" in actions
    assert "account.registered" not in actions, "it is of no competition"
