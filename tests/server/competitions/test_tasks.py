"""A competition of several tasks: made, prepared, opened and closed as one; submissions go to each task."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from lethe.competition.visibility import Visibility
from server.accounts import accounts
from server.competitions import competitions, participants, split_leases
from server.db import now
from server.errors import Conflict
from server.evaluations import evaluations
from server.models.account import Account, Role
from server.models.competition import Competition, CompetitionState, Split, SplitState
from server.models.participation import Participant, TermsAcceptance
from server.models.submission import Fault, Submission
from server.notifications import notification_repository
from server.submissions import baselines
from tests.support.instance import GOOD_CODE, Instance, make_zip
from tests.support.tasks import FACES, make_ready, open_tasks, part_ids, score_parts, send, tasks_toml

S = CompetitionState
API = "/api/v1/competitions"
TASKS = ("three--faces", "three--digits", "three--authors")


def states(server: Instance) -> set[str]:
    with server.database.read() as session:
        return set(session.scalars(select(Competition.state)))


def post(server: Instance, path: str, headers: dict[str, str], **json: object) -> Any:
    return server.client.post(f"{API}/{path}", headers=headers, json=json or None)


def test_tasks_are_made_with_the_competition_and_are_on_no_list(server: Instance, organiser: dict[str, str]) -> None:
    made = server.client.post(API, headers=organiser, content=tasks_toml())
    assert made.status_code == 201, made.text
    assert [(task["name"], task["slug"], task["kind"]) for task in made.json()["tasks"]] == [
        ("faces", "three--faces", "image-classification"),
        ("digits", "three--digits", "image-classification"),
        ("authors", "three--authors", "causal-lm"),
    ]
    assert [(split["competition"], split["visibility"]) for split in made.json()["splits"]] == [
        (slug, visibility) for slug in TASKS for visibility in ("private", "public")
    ]
    listed = server.client.get(API, headers=organiser).json()
    assert [each["slug"] for each in listed] == ["three"]
    task = server.client.get(f"{API}/three--faces", headers=organiser).json()
    assert (task["task_name"], task["state"]) == ("faces", "draft")


def test_a_taken_name_of_a_task_leaves_nothing(server: Instance, olga: Account, organiser: dict[str, str]) -> None:
    server.competition("three--digits", organiser=olga)
    refused = server.client.post(API, headers=organiser, content=tasks_toml())
    assert refused.status_code == 409
    with server.database.read() as session:
        assert list(session.scalars(select(Competition.slug))) == ["three--digits"]


def test_competition_is_ready_once_the_splits_of_every_task_are(server: Instance, organiser: dict[str, str]) -> None:
    server.client.post(API, headers=organiser, content=tasks_toml())
    assert post(server, "three/prepare", organiser).status_code == 202
    assert states(server) == {S.PREPARING}
    with server.database.write() as session:
        splits = session.scalars(select(Split)).all()
        assert len(splits) == 6
        for split in splits[:-1]:
            split.state = SplitState.READY.value
        assert not competitions.note_prepared(session, session.get_one(Competition, splits[0].competition_id))
        splits[-1].state = SplitState.READY.value
        session.flush()
        assert competitions.note_prepared(session, session.get_one(Competition, splits[0].competition_id))
    assert states(server) == {S.READY}


def test_another_file_has_other_tasks(both: Instance) -> None:
    organiser = both.organiser()
    lines = '[tasks.report]\nbaselines = ["finetune"]\n[tasks.network]'
    text = tasks_toml(text=False, opens_at=now() + timedelta(hours=12)).replace("[tasks.network]", lines)
    both.client.post(API, headers=organiser, content=text)
    make_ready(both, state=S.READY)
    assert baselines.submit_missing(both.database, both.storage, at=now()) == 2
    for other in (text, tasks_toml(text=False), tasks_toml()):
        changed = both.client.patch(f"{API}/three", headers=organiser, json={"file": other})
        assert (changed.status_code, changed.json()["state"]) == (200, S.DRAFT), changed.text
    assert len(changed.json()["splits"]) == 6
    assert both.client.delete(f"{API}/three", headers=organiser).status_code == 204
    assert both.client.post(API, headers=organiser, content=tasks_toml()).status_code == 201


def test_another_end_is_that_of_every_task(server: Instance, olga: Account, organiser: dict[str, str]) -> None:
    open_tasks(server, olga)

    def change(slug: str, **values: object) -> Any:
        return server.client.patch(f"{API}/{slug}", headers=organiser, json={"reason": "more", **values})

    end = (now() + timedelta(days=9)).replace(microsecond=0)
    assert change("three", closes_at=end.isoformat()).status_code == 200
    assert change("three", limits={"submissions_per_day": 7}).status_code == 200
    for slug in ("three", *TASKS):
        found = server.client.get(f"{API}/{slug}").json()
        assert datetime.fromisoformat(found["closes_at"]) == end
        assert found["limits"]["submissions_per_day"] == 7
    for slug, limits, said in (
        ("three", {"memory_mib": 4096}, "is a limit of each task"),
        ("three--faces", {"submissions_per_day": 9}, "is the same for all tasks"),
    ):
        refused = change(slug, limits=limits)
        assert (refused.status_code, said in refused.json()["detail"]) == (422, True)


def test_strangers_to_the_competition_are_strangers_to_its_tasks(server: Instance, organiser: dict[str, str]) -> None:
    server.client.post(API, headers=organiser, content=tasks_toml())
    other = server.organiser("otto")
    assert server.client.get(f"{API}/three--faces", headers=other).status_code == 404
    make_ready(server)
    assert server.client.get(f"{API}/three--faces", headers=other).status_code == 200
    assert server.client.get(f"{API}/three--faces/preparation", headers=other).status_code == 403
    assert server.client.get(f"{API}/three--faces/preparation", headers=organiser).status_code == 200


def test_a_submission_goes_to_every_task_as_one(server: Instance, olga: Account) -> None:
    open_tasks(server, olga, limits={"submissions_per_day": 2})
    ada = server.participant()
    sent = send(server, ada)
    assert sent.status_code == 201, sent.text
    assert [(part["task"], part["stage"]) for part in sent.json()["parts"]] == [
        ("faces", "queued"),
        ("digits", "queued"),
        ("authors", "queued"),
    ]
    assert sent.json()["quota"]["remaining"] == 1
    assert len(server.client.get(f"{API}/three/submissions", headers=ada).json()) == 1
    assert send(server, ada, "authors").json()["quota"]["remaining"] == 0
    assert send(server, ada).status_code == 429
    only = server.client.get(f"{API}/three--authors/submissions", headers=ada).json()
    assert len(only) == 2
    assert len(server.client.get(f"{API}/three--faces/submissions", headers=ada).json()) == 1


def test_unknown_tasks_are_refused_and_a_tasks_address_names_it(server: Instance, olga: Account) -> None:
    open_tasks(server, olga)
    ada = server.participant()
    refused = send(server, ada, "faces,birds")
    assert refused.status_code == 422
    assert "tasks must be of faces, digits, authors" in refused.json()["detail"]
    direct = server.submit(ada, slug="three--faces")
    assert (direct.status_code, direct.json()["competition"]) == (201, "three")
    assert [part["task"] for part in direct.json()["parts"]] == ["faces"]
    server.competition("one")
    refused = server.client.post(
        f"{API}/one/submissions", headers=ada, files={"file": ("a.py", GOOD_CODE)}, data={"tasks": "faces"}
    )
    assert refused.status_code == 422
    assert "has no tasks" in refused.json()["detail"]


def test_a_failure_in_the_second_task_leaves_nothing(server, olga, monkeypatch):
    open_tasks(server, olga)
    ada = server.participant()
    start, begun = evaluations.start, []

    def fails_second(*arguments: Any, **options: Any) -> Any:
        begun.append(1)
        if len(begun) == 2:
            raise RuntimeError("the disk is full")
        return start(*arguments, **options)

    monkeypatch.setattr(evaluations, "start", fails_second)
    assert send(server, ada).status_code == 500
    assert len(begun) == 2
    monkeypatch.setattr(evaluations, "start", start)
    with server.database.read() as session:
        assert session.scalars(select(Submission)).all() == []
    assert send(server, ada).json()["quota"]["used_today"] == 1


def test_a_zip_may_hold_a_file_for_each_task(server: Instance, olga: Account) -> None:
    open_tasks(server, olga)
    code = make_zip({"submission.py": GOOD_CODE, "authors.py": GOOD_CODE + b"# of text\n"})
    sent = send(server, server.participant(), filename="all.zip", code=code).json()
    with server.database.read() as session:
        own = {name: session.get_one(Submission, part) for name, part in part_ids(server, sent["id"]).items()}
    assert {name: part.entry_point["file"] for name, part in own.items()} == {
        "faces": "submission.py",
        "digits": "submission.py",
        "authors": "authors.py",
    }


def test_a_submission_ends_with_its_last_part(both: Instance) -> None:
    open_tasks(both, both.account("olga", Role.ORGANISER))
    ada = both.participant()
    sent = send(both, ada).json()["id"]
    own = part_ids(both, sent)
    score_parts(both, sent, faces=0.1)
    assert both.shown(ada, sent)["stage"] == "running"
    both.fail(own["digits"], Fault.PARTICIPANT)
    score_parts(both, sent, authors=0.3)
    found = both.shown(ada, sent)
    assert (found["stage"], found["refunded"], found["combined_score"]) == ("scored", False, 0.13333)
    assert [(part["stage"], (part["score"] or {}).get("final_score")) for part in found["parts"]] == [
        ("scored", 0.1),
        ("failed", None),
        ("scored", 0.3),
    ]
    assert found["parts"][1]["failure"]["error_class"] == "exception"
    assert both.shown(ada, own["digits"])["part_of"] == sent


def test_cancelled_and_failed_wholes_cost_nothing(server: Instance, olga: Account) -> None:
    open_tasks(server, olga)
    ada = server.participant()
    sent = send(server, ada).json()["id"]
    cancelled = server.client.post(f"/api/v1/submissions/{sent}/cancel", headers=ada).json()
    assert (cancelled["stage"], cancelled["refunded"]) == ("cancelled", True)
    assert {part["stage"] for part in cancelled["parts"]} == {"cancelled"}
    assert server.client.get(f"{API}/three/quota", headers=ada).json()["used_today"] == 0
    failed = send(server, ada).json()["id"]
    for part in part_ids(server, failed).values():
        server.fail(part, Fault.HOST)
    found = server.shown(ada, failed)
    assert (found["stage"], found["refunded"], found["failure"]["fault"]) == ("failed", True, "host")


def test_cancelling_leaves_a_part_that_organisers_run_again(server: Instance, olga: Account) -> None:
    open_tasks(server, olga)
    ada = server.participant()
    sent = send(server, ada).json()["id"]
    own = part_ids(server, sent)
    for part in own.values():
        server.score(part, 0.1)
    body = {"act": "run-again", "reason": "a disk broke"}
    path = f"{API}/three/submissions/{own['digits']}/acts"
    assert server.client.post(path, headers=server.headers(olga), json=body).status_code == 200
    assert server.shown(ada, sent)["can_cancel"] is False
    assert server.client.post(f"/api/v1/submissions/{sent}/cancel", headers=ada).status_code == 409
    server.score(own["digits"], 0.2)
    assert server.shown(ada, sent)["stage"] == "scored"


def test_a_split_that_fails_names_its_task_at_the_others(server: Instance) -> None:
    olga = server.account("olga", Role.ORGANISER)
    with server.database.write() as session:
        competitions.create(session, tasks_toml(text=False), organiser=olga)
    server.client.post(f"{API}/three/prepare", headers=server.headers(olga))
    with server.database.write() as session:
        competition = competitions.get(session, "three", account=olga)
        first = competitions.get_split(session, competitions.get_task(session, competition, FACES), Visibility.PUBLIC)
        work = split_leases.claim(session, first.id, lease_s=60)
        assert work is not None
        split_leases.fail(session, work, "no such column")
        errors = {split.error for split in competitions.splits(session, competition) if split.id != first.id}
    assert errors == {"stopped, since the public split of the task faces failed: no such column"}


def test_announcements_reach_who_is_admitted_and_has_no_team(server: Instance) -> None:
    with server.database.write() as session:
        for name in ("olga", "ada", "bob", "cyd", "dan"):
            account = accounts.register(session, name=name, password="correct horse battery", role=Role.PARTICIPANT)
            account.email, account.email_confirmed_at = f"{name}@example.org", now()
            account.role = (Role.ORGANISER if name == "olga" else Role.PARTICIPANT).value
            session.flush()
        people = {account.name: account for account in session.scalars(select(Account))}
        competition = competitions.create(session, tasks_toml(text=False), organiser=people["olga"])
        for name, state in (("ada", "admitted"), ("bob", "asked"), ("cyd", "refused")):
            session.add(Participant(competition_id=competition.id, account_id=people[name].id, state=state))
        for name in ("cyd", "dan"):
            session.add(TermsAcceptance(competition_id=competition.id, account_id=people[name].id, version=1))
        session.flush()
        found = notification_repository.addresses_of_competition(session, competition.id)
    assert found == ["ada@example.org", "dan@example.org", "olga@example.org"]


def test_a_task_is_changed_with_the_whole_alone(server: Instance, olga: Account, organiser: dict[str, str]) -> None:
    open_tasks(server, olga)
    acts = {"prepare": S.READY, "open": S.READY, "close": S.OPEN, "reveal": S.PROVISIONAL, "archive": S.FINAL}
    for act, state in acts.items():
        make_ready(server, state=state)
        refused = post(server, f"three--faces/{act}", organiser, reason="why not")
        assert (refused.status_code, "do this to three" in refused.json()["detail"]) == (409, True), act
        assert states(server) == {state}
    make_ready(server, state=S.DRAFT)
    url = f"{API}/three--faces"
    text = tasks_toml().replace('"three"', '"three--faces"')
    later = {"closes_at": (now() + timedelta(days=9)).isoformat(), "reason": "more time"}
    for body in ({"file": text}, later):
        assert server.client.patch(url, headers=organiser, json=body).status_code == 409
    assert server.client.delete(url, headers=organiser).status_code == 409
    news = {"title": "Hello", "text": "all"}
    assert server.client.post(f"{url}/announcements", headers=organiser, json=news).status_code == 409
    server.account("otto", Role.ORGANISER)
    with server.database.write() as session, pytest.raises(Conflict, match="do this to three"):
        participants.add_organiser(
            session, competitions.get(session, "three--faces", account=olga), "otto", actor=olga, reason=""
        )
