"""Competitions over HTTP: made, prepared, opened, closed, and what outsiders see."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from lethe.competition.run_limits import RetrainingCost
from server import queue
from server.competitions import competitions, split_leases
from server.competitions.split_leases import PreparedSplit
from server.db import now
from server.models.account import AuditEvent, Role
from server.models.competition import CompetitionState, Split, SplitState
from tests.support.instance import Instance, competition_toml

S = CompetitionState

PREPARED = PreparedSplit(manifest_sha256="0" * 64, n_forget=3, retraining_time_s=1.0, oracle={"final_score": 0.5})


def create(server: Instance, text: str, headers: dict[str, str]) -> object:
    return server.client.post(
        "/api/v1/competitions", content=text, headers={**headers, "Content-Type": "application/toml"}
    )


def act(server: Instance, verb: str, headers: dict[str, str], **body: str) -> object:
    return server.client.post(f"/api/v1/competitions/digits/{verb}", headers=headers, json=body)


def queued(server: Instance) -> int:
    with queue.client().connection_for_read() as connection:
        return connection.default_channel.client.llen("lethe.prepare")


def prepare_all(server: Instance) -> None:
    """Do what a worker would report: each split claimed and finished."""
    with server.database.read() as session:
        ids = session.scalars(select(Split.id)).all()
    for split_id in ids:
        with server.database.write() as session:
            work = split_leases.claim(session, split_id, lease_s=60)
            assert work is not None
            assert split_leases.finish(session, work, PREPARED)


def test_life_from_file_to_close(both: Instance) -> None:
    olga = both.organiser()
    made = create(both, competition_toml(), olga)
    assert made.status_code == 201, made.text
    assert made.json()["state"] == "draft"
    assert [split["state"] for split in made.json()["splits"]] == ["pending", "pending"]
    assert act(both, "open", olga).status_code == 409
    prepared = act(both, "prepare", olga)
    assert (prepared.status_code, prepared.json()["state"]) == (202, "preparing")
    assert queued(both) == 2
    prepare_all(both)
    shown = both.client.get("/api/v1/competitions/digits/preparation", headers=olga).json()
    assert shown["state"] == "ready"
    opened = act(both, "open", olga, reason="all is well")
    assert opened.json()["state"] == "open"
    closed = act(both, "close", olga)
    assert closed.json()["state"] == "closed"
    with both.database.read() as session:
        events = session.execute(select(AuditEvent.action, AuditEvent.actor, AuditEvent.reason)).all()
    assert [tuple(event) for event in events if event.action.startswith("competition.")] == [
        ("competition.created", "olga", ""),
        ("competition.preparing", "olga", ""),
        ("competition.ready", "system", ""),
        ("competition.opened", "olga", "all is well"),
        ("competition.closed", "olga", ""),
    ]


@pytest.mark.parametrize(
    ("verb", "state"),
    [
        ("cancel-preparation", S.DRAFT),
        ("prepare", S.PREPARING),
        ("open", S.OPEN),
        ("close", S.CLOSED),
        ("close", S.PROVISIONAL),
        ("close", S.FINAL),
        ("reveal", S.FINAL),
        ("reveal", S.ARCHIVED),
        ("archive", S.ARCHIVED),
    ],
)
def test_asking_for_what_is_so_already_succeeds(both: Instance, verb: str, state: S) -> None:
    organiser = both.account("olga", Role.ORGANISER)
    before = both.competition(organiser=organiser, state=state)
    answer = act(both, verb, both.headers(organiser), reason="asked twice")
    assert answer.is_success, answer.text
    with both.database.read() as session:
        competition = session.get_one(type(before), before.id)
        moves = session.scalars(select(AuditEvent.action).where(AuditEvent.action.startswith("competition."))).all()
    unchanged = ("state", "opens_at", "closes_at", "closed_at", "revealed_at")
    assert [getattr(competition, name) for name in unchanged] == [getattr(before, name) for name in unchanged]
    assert moves == ["competition.created"]


def test_organiser_and_scheduler_open_at_the_same_time(both: Instance) -> None:
    """The scheduler moves it between an organiser's look and their act, as often as they like."""
    organiser = both.account("olga", Role.ORGANISER)
    both.competition(organiser=organiser, state=S.READY)
    olga = both.headers(organiser)
    assert both.client.get("/api/v1/competitions/digits").json()["state"] == "ready"
    both.tick()
    opened = act(both, "open", olga, reason="by hand")
    assert (opened.status_code, opened.json()["state"]) == (200, "open")
    with both.database.read() as session:
        by = session.scalars(select(AuditEvent.actor).where(AuditEvent.action == "competition.opened")).all()
    assert by == ["system"]


def test_nothing_past_its_end_is_opened(server: Instance) -> None:
    at = now()
    organiser = server.account("olga", Role.ORGANISER)
    dates = {"opens_at": at - timedelta(days=2), "closes_at": at - timedelta(days=1)}
    server.competition(organiser=organiser, state=S.OPEN, **dates)
    refused = act(server, "open", server.headers(organiser))
    assert (refused.status_code, "extend it first" in refused.text) == (409, True)


def test_opening_and_closing_by_hand_move_the_dates(server: Instance) -> None:
    at = now()
    organiser = server.account("olga", Role.ORGANISER)
    opens_at, closes_at = at + timedelta(days=1), at + timedelta(days=2)
    server.competition(organiser=organiser, state=S.READY, opens_at=opens_at, closes_at=closes_at)
    olga, ada = server.headers(organiser), server.participant("ada")
    assert server.submit(ada).status_code == 409
    act(server, "open", olga)
    assert server.submit(ada).status_code == 201
    act(server, "close", olga)
    assert server.submit(ada).status_code == 409


def test_failed_preparation_is_tried_again(server: Instance) -> None:
    olga = server.organiser()
    create(server, competition_toml(), olga)
    act(server, "prepare", olga)
    with server.database.write() as session:
        works = [split_leases.claim(session, split.id, lease_s=60) for split in session.scalars(select(Split)).all()]
        assert works[0] is not None
        split_leases.fail(session, works[0], "disk full")
    shown = server.client.get("/api/v1/competitions/digits/preparation", headers=olga).json()
    assert {split["state"] for split in shown["splits"]} == {SplitState.FAILED}
    assert "disk full" in {split["error"] for split in shown["splits"]}
    again = act(server, "prepare", olga).json()
    assert {split["state"] for split in again["splits"]} == {SplitState.PENDING}
    prepare_all(server)
    assert server.client.get("/api/v1/competitions/digits").json()["state"] == "ready"


def check_again(server: Instance, olga: dict[str, str], *, measure: bool, cpu_s: float) -> list[tuple[bool, bool]]:
    """Have the ready splits checked, by a worker that would measure so. Return what each was asked to measure."""
    path = f"/api/v1/competitions/digits/prepare?measure={str(measure).lower()}"
    assert server.client.post(path, headers=olga).status_code == 202
    asked = []
    with server.database.read() as session:
        ids = session.scalars(select(Split.id)).all()
    for split_id in ids:
        with server.database.write() as session:
            work = split_leases.claim(session, split_id, lease_s=60)
            assert work is not None
            asked.append((work.retraining is not None, work.measures_again))
            cost = work.retraining if work.retraining and not work.measures_again else RetrainingCost(1.0, cpu_s, 0.1)
            measured = {
                "retraining_time_s": cost.time_s,
                "retraining_cpu_s": cost.cpu_s,
                "start_cpu_s": cost.start_cpu_s,
            }
            assert split_leases.finish(session, work, replace(PREPARED, **measured))
    return asked


def announcements(server: Instance) -> list[str]:
    return [each["text"] for each in server.client.get("/api/v1/competitions/digits/announcements").json()]


def test_measured_retraining_stays_until_an_organiser_asks(both: Instance) -> None:
    olga = both.organiser()
    create(both, competition_toml(), olga)
    assert check_again(both, olga, measure=False, cpu_s=0.19) == [(False, False)] * 2
    act(both, "open", olga)
    assert check_again(both, olga, measure=False, cpu_s=0.25) == [(True, False)] * 2
    assert announcements(both) == []
    assert check_again(both, olga, measure=True, cpu_s=0.25) == [(True, True)] * 2
    [said] = announcements(both)
    assert "0.25 s in place of 0.19 s" in said
    with both.database.read() as session:
        measured = select(AuditEvent.data).where(AuditEvent.action == "competition.retraining_changed")
        found = sorted(session.scalars(measured), key=lambda data: data["split"])
        assert found == [{"split": split, "from": "0.19 s", "to": "0.25 s"} for split in ("private", "public")]
    assert check_again(both, olga, measure=False, cpu_s=0.5) == [(True, False)] * 2
    assert len(announcements(both)) == 1


def test_only_an_administrator_brings_a_network_of_their_own(server: Instance) -> None:
    text = re.sub(r'(?m)^name = "mlp".*$', 'name = "module"', competition_toml())
    assert '"module"' in text
    refused = create(server, text, server.organiser())
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (403, "network.name")
    administrator = server.headers(server.account("root-of-all", Role.ADMINISTRATOR))
    assert create(server, text, administrator).status_code == 201


def test_drafts_are_hidden_from_all_but_their_organisers(server: Instance) -> None:
    organiser = server.account("olga", Role.ORGANISER)
    server.competition(organiser=organiser, state=S.PREPARING)
    server.competition("other")
    for headers in ({}, server.participant("ada"), server.organiser("oscar")):
        listed = server.client.get("/api/v1/competitions", headers=headers).json()
        assert [row["slug"] for row in listed] == ["other"]
        for path in ("", "/quota", "/team", "/submissions", "/leaderboard"):
            assert server.client.get(f"/api/v1/competitions/digits{path}", headers=headers).status_code == 404
    listed = server.client.get("/api/v1/competitions", headers=server.headers(organiser)).json()
    assert {row["slug"] for row in listed} == {"digits", "other"}


def test_shown_competition_tells_rules_and_quota_but_no_secret(server: Instance) -> None:
    server.competition(
        extra="[splits]\nseed = 42424242424242424242\n[splits.forget]\nprivate_ids = [131313]\nids = [141414]\n"
    )
    headers = server.participant()
    answer = server.client.get("/api/v1/competitions/digits", headers=headers)
    shown = answer.json()
    assert shown["runs"] == 4
    assert shown["limits"]["submissions_per_day"] == 5
    assert shown["quota"]["remaining"] == 5
    assert server.client.get("/api/v1/competitions/digits").json()["quota"] is None
    for secret in ("424242", "131313", "141414"):
        assert secret not in answer.text, "who knows the seed can cut the private split"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (("n_models = 4", "n_models = 1"), "n_models"),
        (("epochs = 1", "epochs = 0"), "training.epochs"),
        (("epochs = 1", 'epochs = "many"'), "training.epochs"),
        (("epochs = 1", "epochs = 1\nunknown = 2"), "training.unknown"),
        (('slug = "digits"', 'slug = "Di gits"'), "slug"),
        (('name = "digits"', ""), "dataset.name"),
    ],
)
def test_file_with_a_wrong_value_names_it(server: Instance, change: tuple[str, str], field: str) -> None:
    answer = create(server, competition_toml().replace(*change), server.organiser())
    assert answer.status_code == 422
    assert answer.json()["type"] == "urn:lethe:problem:invalid-competition-file"
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert server.client.get("/api/v1/competitions").json() == []


def test_file_with_an_impossible_date_names_its_line(server: Instance) -> None:
    text = competition_toml().replace(
        'title = "Forgetting digits"', 'title = "x"\nmerge_deadline = 2030-02-30T00:00:00Z'
    )
    answer = create(server, text, server.organiser())
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["line"] == 4
    assert "line" not in answer.json()["errors"][0]["message"]


def test_file_with_dates_the_wrong_way_round_says_which(server: Instance) -> None:
    at = now()
    answer = create(server, competition_toml(opens_at=at, closes_at=at - timedelta(days=1)), server.organiser())
    assert answer.status_code == 422
    assert "must be later than opens_at" in answer.json()["detail"]


def test_file_without_a_time_zone_is_refused(server: Instance) -> None:
    text = "\n".join(
        "opens_at = 2030-01-01T00:00:00" if line.startswith("opens_at") else line
        for line in competition_toml().splitlines()
    )
    answer = create(server, text, server.organiser())
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "opens_at"


def test_taken_slug_is_a_conflict(both: Instance) -> None:
    olga = both.organiser()
    create(both, competition_toml(), olga)
    answer = create(both, competition_toml(), olga)
    assert answer.status_code == 409
    assert answer.json()["errors"][0]["field"] == "slug"


def created(server: Instance, headers: dict[str, str], options: str, slug: str = "digits") -> Any:
    text = competition_toml(slug).replace('[dataset]\nname = "digits"', f'[dataset]\nname = "folder"\n{options}')
    return server.client.post("/api/v1/competitions", headers=headers, content=text)


@pytest.mark.parametrize("option", ['root = "/etc"', 'root = "../x"', 'root = "a"\ntable = "/x.csv"', 'root = "~/x"'])
def test_path_of_the_host_is_refused_of_an_organiser(server: Instance, option: str) -> None:
    answer = created(server, server.organiser(), f"[dataset.options]\n{option}")
    assert answer.status_code == 403
    assert "LETHE_DATASET_ROOTS" in answer.json()["detail"]


def test_administrator_may_name_any_path(server: Instance) -> None:
    headers = server.headers(server.account("root", Role.ADMINISTRATOR))
    assert created(server, headers, '[dataset.options]\nroot = "/data"').status_code == 201


def test_path_below_the_folders_is_taken(server: Instance) -> None:
    assert created(server, server.organiser(), '[dataset.options]\nroot = "mine"').status_code == 201


def test_file_of_earlier_rules_is_not_prepared(server: Instance) -> None:
    olga = server.account("olga", Role.ORGANISER)
    headers = server.headers(olga)
    assert created(server, headers, '[dataset.options]\nroot = "mine"').status_code == 201
    with server.database.write() as session:
        row = competitions.get(session, "digits", account=olga)
        row.config = row.config | {"dataset": {"name": "folder", "options": {"root": "/etc"}}}
    assert server.client.post("/api/v1/competitions/digits/prepare", headers=headers).status_code == 403
