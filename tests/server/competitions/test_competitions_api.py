"""Competitions over HTTP: made, prepared, opened, closed, what outsiders see; and the table of their transitions."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from sqlalchemy import create_engine, select
from sqlalchemy.orm import Session

from lethe.competition.run_limits import RetrainingCost
from server import queue
from server.competitions import competitions, lifecycle, split_leases
from server.competitions.split_leases import PreparedSplit
from server.db import now
from server.errors import Conflict
from server.models.account import AuditEvent, Role
from server.models.competition import Competition, CompetitionState, Split
from server.models.registry import metadata
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
    both.prepare_splits()
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


def test_asking_for_what_is_so_already_succeeds(both: Instance) -> None:
    organiser = both.account("olga", Role.ORGANISER)
    before, olga = both.competition(organiser=organiser), both.headers(organiser)
    unchanged = ("opens_at", "closes_at", "closed_at", "revealed_at")
    for verb, states in {
        "cancel-preparation": [S.DRAFT],
        "prepare": [S.PREPARING],
        "open": [S.OPEN],
        "close": [S.CLOSED, S.PROVISIONAL, S.FINAL],
        "reveal": [S.FINAL, S.ARCHIVED],
        "archive": [S.ARCHIVED],
    }.items():
        for state in states:
            with both.database.write() as session:
                session.get_one(Competition, before.id).state = state.value
            answer = act(both, verb, olga, reason="asked twice")
            assert answer.is_success, answer.text
            with both.database.read() as session:
                competition = session.get_one(Competition, before.id)
                moved = select(AuditEvent.action).where(AuditEvent.action.startswith("competition."))
                assert session.scalars(moved).all() == ["competition.created"]
            assert competition.state == state
            assert [getattr(competition, name) for name in unchanged] == [getattr(before, name) for name in unchanged]


def test_organiser_and_scheduler_open_at_the_same_time(both: Instance) -> None:
    """The scheduler moves it between an organiser's look and their act, as often as they like."""
    olga = both.organised(state=S.READY)
    assert both.client.get("/api/v1/competitions/digits").json()["state"] == "ready"
    both.tick()
    opened = act(both, "open", olga, reason="by hand")
    assert (opened.status_code, opened.json()["state"]) == (200, "open")
    with both.database.read() as session:
        by = session.scalars(select(AuditEvent.actor).where(AuditEvent.action == "competition.opened")).all()
    assert by == ["system"]


def test_nothing_past_its_end_is_opened(server: Instance) -> None:
    at = now()
    dates = {"opens_at": at - timedelta(days=2), "closes_at": at - timedelta(days=1)}
    olga = server.organised(state=S.OPEN, **dates)
    refused = act(server, "open", olga)
    assert (refused.status_code, "extend it first" in refused.text) == (409, True)


def test_opening_and_closing_by_hand_move_the_dates(server: Instance) -> None:
    at = now()
    olga = server.organised(state=S.READY, opens_at=at + timedelta(days=1), closes_at=at + timedelta(days=2))
    ada = server.participant("ada")
    assert server.submit(ada).status_code == 409
    act(server, "open", olga)
    assert server.submit(ada).status_code == 201
    act(server, "close", olga)
    assert server.submit(ada).status_code == 409


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


def test_file_with_a_wrong_value_names_it(server: Instance) -> None:
    olga, at = server.organiser(), now()
    wrong: list[tuple[str, str, str]] = [
        ("n_models = 4", "n_models = 1", "n_models"),
        ("epochs = 1", "epochs = 0", "training.epochs"),
        ("epochs = 1", 'epochs = "many"', "training.epochs"),
        ("epochs = 1", "epochs = 1\nunknown = 2", "training.unknown"),
        ('slug = "digits"', 'slug = "Di gits"', "slug"),
        ('name = "digits"', "", "dataset.name"),
        ("opens_at = ", "opens_at = 2030-01-01T00:00:00  # ", "opens_at"),
    ]
    for old, new, field in wrong:
        answer = create(server, competition_toml().replace(old, new, 1), olga)
        assert answer.status_code == 422
        assert answer.json()["type"] == "urn:lethe:problem:invalid-competition-file"
        assert [error["field"] for error in answer.json()["errors"]] == [field]
    impossible = competition_toml().replace('title = "Forgetting digits"', 'title = "x"\nmerge_deadline = 2030-02-30')
    answer = create(server, impossible, olga)
    assert (answer.status_code, answer.json()["errors"][0]["line"]) == (422, 4)
    assert "line" not in answer.json()["errors"][0]["message"]
    answer = create(server, competition_toml(opens_at=at, closes_at=at - timedelta(days=1)), olga)
    assert (answer.status_code, "must be later than opens_at" in answer.json()["detail"]) == (422, True)
    assert server.client.get("/api/v1/competitions").json() == []
    assert create(server, competition_toml(), olga).status_code == 201
    taken = create(server, competition_toml(), olga)
    assert (taken.status_code, taken.json()["errors"][0]["field"]) == (409, "slug")


def test_only_an_administrator_reaches_the_host(server: Instance) -> None:
    def folder(options: str, slug: str = "digits") -> str:
        named = f'[dataset]\nname = "folder"\n[dataset.options]\n{options}'
        return competition_toml(slug).replace('[dataset]\nname = "digits"', named)

    olga = server.account("olga", Role.ORGANISER)
    headers, root = server.headers(olga), server.headers(server.account("root-of-all", Role.ADMINISTRATOR))
    network = re.sub(r'(?m)^name = "mlp".*$', 'name = "module"', competition_toml("own"))
    assert '"module"' in network
    refused = create(server, network, headers)
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (403, "network.name")
    assert create(server, network, root).status_code == 201
    for options in ('root = "/etc"', 'root = "../x"', 'root = "a"\ntable = "/x.csv"', 'root = "~/x"'):
        refused = create(server, folder(options), headers)
        assert (refused.status_code, "LETHE_DATASET_ROOTS" in refused.json()["detail"]) == (403, True), options
    assert create(server, folder('root = "/data"', "any"), root).status_code == 201
    assert create(server, folder('root = "mine"'), headers).status_code == 201, "it is below the folders"
    with server.database.write() as session:  # a file of earlier rules is not prepared
        row = competitions.get(session, "digits", account=olga)
        row.config = row.config | {"dataset": {"name": "folder", "options": {"root": "/etc"}}}
    assert act(server, "prepare", headers).status_code == 403


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


OPENS = datetime(2030, 1, 1, tzinfo=UTC)
CLOSES = datetime(2030, 3, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MOMENTS = (OPENS - SECOND, OPENS, CLOSES - SECOND, CLOSES)


def in_state(state: S) -> Competition:
    return Competition(id="c", slug="digits", state=state.value, opens_at=OPENS, closes_at=CLOSES)


def test_only_the_transitions_of_the_table_happen() -> None:
    engine = create_engine("sqlite://")
    metadata.create_all(engine)
    for start, to in product(S, S):
        session, moved = Session(engine, autoflush=False), in_state(start)
        if to in lifecycle.TRANSITIONS[start]:
            lifecycle.move(session, moved, to, actor=None, reason="why")
            (event,) = session.new
            assert isinstance(event, AuditEvent)
            assert (event.actor, event.reason, event.data) == ("system", "why", {"from": start.value, "to": to.value})
        elif to == start:
            lifecycle.move(session, moved, to, actor=None)
            assert not session.new, "there is nothing to record"
        else:
            with pytest.raises(Conflict, match=f"is {start} and cannot become {to}"):
                lifecycle.move(session, moved, to, actor=None)
            assert not session.new
        assert moved.state == (to if to in lifecycle.TRANSITIONS[start] else start)
        session.close()
    engine.dispose()
    assert {state for state in S if lifecycle.is_revealed(in_state(state))} == {S.FINAL, S.ARCHIVED}


def test_every_state_but_the_last_leads_on() -> None:
    assert [state for state in S if not lifecycle.TRANSITIONS[state]] == [S.ARCHIVED]
    reached, frontier = {S.DRAFT}, [S.DRAFT]
    while frontier:
        found = lifecycle.TRANSITIONS[frontier.pop()] - reached
        reached |= found
        frontier.extend(found)
    assert reached == set(S)


def test_the_moment_of_receipt_decides() -> None:
    for state in (S.OPEN, S.READY):
        accepted = {at for at in MOMENTS if lifecycle.accepts_submission(in_state(state), at)}
        assert accepted == {OPENS, CLOSES - SECOND}
    closed = in_state(S.CLOSED)
    assert [lifecycle.accepts_submission(closed, at) for at in (CLOSES - SECOND, CLOSES)] == [True, False]
    closed.frozen_at = CLOSES + SECOND
    for over in (closed, in_state(S.PREPARING), in_state(S.PROVISIONAL), in_state(S.FINAL)):
        assert not any(lifecycle.accepts_submission(over, at) for at in MOMENTS)
