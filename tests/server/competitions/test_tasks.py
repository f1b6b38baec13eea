"""A competition of several tasks: made, prepared, opened and closed as one; submissions go to each task; boards."""

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
from tests.support.tasks import FACES, make_ready, open_tasks, part_ids, score_parts, tasks_toml

S = CompetitionState
API = "/api/v1/competitions"
TASKS = ("three--faces", "three--digits", "three--authors")


def states(server: Instance) -> set[str]:
    with server.database.read() as session:
        return set(session.scalars(select(Competition.state)))


def post(server: Instance, path: str, headers: dict[str, str], **json: object) -> Any:
    return server.client.post(f"{API}/{path}", headers=headers, json=json or None)


def send(server: Instance, headers: dict[str, str], tasks: str = "", **values: object) -> Any:
    return server.client.post(
        f"{API}/three/submissions",
        headers=headers,
        files={"file": (values.get("filename", "submission.py"), values.get("code", GOOD_CODE))},
        data={"tasks": tasks},
    )


def board(server: Instance, headers: dict[str, str] | None = None, **params: str) -> dict[str, Any]:
    answer = server.client.get(f"{API}/three/leaderboard", headers=headers, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def standings(found: dict[str, Any]) -> list[tuple[int | None, str, float]]:
    return [(row["rank"], row["team"], row["score"]) for row in found["rows"] if row["kind"] == "team"]


# --- made and prepared ---


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


def test_another_file_has_other_tasks(server: Instance, organiser: dict[str, str]) -> None:
    server.client.post(API, headers=organiser, content=tasks_toml())
    for text in (tasks_toml(text=False), tasks_toml()):
        changed = server.client.patch(f"{API}/three", headers=organiser, json={"file": text})
        assert changed.status_code == 200, changed.text
    assert len(changed.json()["splits"]) == 6
    assert server.client.delete(f"{API}/three", headers=organiser).status_code == 204
    assert server.client.post(API, headers=organiser, content=tasks_toml()).status_code == 201


def test_prepared_tasks_with_reference_lines_take_another_file(both: Instance) -> None:
    organiser = both.headers(both.account("olga", Role.ORGANISER))
    text = tasks_toml(text=False, opens_at=now() + timedelta(hours=12)).replace(
        "[tasks.network]", '[tasks.report]\nbaselines = ["finetune"]\n[tasks.network]'
    )
    both.client.post(API, headers=organiser, content=text)
    make_ready(both, state=S.READY)
    assert baselines.submit_missing(both.database, both.storage, at=now()) == 2
    changed = both.client.patch(f"{API}/three", headers=organiser, json={"file": text})
    assert (changed.status_code, changed.json()["state"]) == (200, S.DRAFT), changed.text


@pytest.mark.parametrize(
    ("act", "state"),
    [("prepare", S.READY), ("open", S.READY), ("close", S.OPEN), ("reveal", S.PROVISIONAL), ("archive", S.FINAL)],
)
def test_a_task_cannot_be_driven_by_itself(server, olga, organiser, act, state):
    open_tasks(server, olga)
    make_ready(server, state=state)
    refused = post(server, f"three--faces/{act}", organiser, reason="why not")
    assert refused.status_code == 409, refused.text
    assert "do this to three" in refused.json()["detail"]
    assert states(server) == {state}


def test_a_task_has_no_file_end_or_organisers_of_its_own(server, olga, organiser):
    open_tasks(server, olga)
    make_ready(server, state=S.DRAFT)
    url = f"{API}/three--faces"
    text = tasks_toml().replace('"three"', '"three--faces"')
    assert server.client.patch(url, headers=organiser, json={"file": text}).status_code == 409
    assert server.client.delete(url, headers=organiser).status_code == 409
    later = {"closes_at": (now() + timedelta(days=9)).isoformat(), "reason": "more time"}
    assert server.client.patch(url, headers=organiser, json=later).status_code == 409
    news = {"title": "Hello", "text": "all"}
    assert server.client.post(f"{url}/announcements", headers=organiser, json=news).status_code == 409
    server.account("otto", Role.ORGANISER)
    with server.database.write() as session, pytest.raises(Conflict, match="do this to three"):
        participants.add_organiser(
            session, competitions.get(session, "three--faces", account=olga), "otto", actor=olga, reason=""
        )


def test_another_end_is_that_of_every_task(server: Instance, olga: Account, organiser: dict[str, str]) -> None:
    open_tasks(server, olga)
    end = (now() + timedelta(days=9)).replace(microsecond=0)
    changed = {"closes_at": end.isoformat(), "reason": "more time"}
    assert server.client.patch(f"{API}/three", headers=organiser, json=changed).status_code == 200
    limits = {"limits": {"submissions_per_day": 7}, "reason": "more of them"}
    assert server.client.patch(f"{API}/three", headers=organiser, json=limits).status_code == 200
    for slug in ("three", *TASKS):
        found = server.client.get(f"{API}/{slug}").json()
        assert datetime.fromisoformat(found["closes_at"]) == end
        assert found["limits"]["submissions_per_day"] == 7


@pytest.mark.parametrize(
    ("slug", "limit", "said"),
    [
        ("three", {"memory_mib": 4096}, "is a limit of each task"),
        ("three--faces", {"submissions_per_day": 9}, "is the same for all tasks"),
    ],
)
def test_limits_are_changed_where_they_belong(server, olga, organiser, slug, limit, said):
    open_tasks(server, olga)
    refused = server.client.patch(f"{API}/{slug}", headers=organiser, json={"limits": limit, "reason": "x"})
    assert refused.status_code == 422
    assert said in refused.json()["detail"]


def test_strangers_to_the_competition_are_strangers_to_its_tasks(server: Instance, organiser: dict[str, str]) -> None:
    server.client.post(API, headers=organiser, content=tasks_toml())
    other = server.organiser("otto")
    assert server.client.get(f"{API}/three--faces", headers=other).status_code == 404
    make_ready(server)
    assert server.client.get(f"{API}/three--faces", headers=other).status_code == 200
    assert server.client.get(f"{API}/three--faces/preparation", headers=other).status_code == 403
    assert server.client.get(f"{API}/three--faces/preparation", headers=organiser).status_code == 200


# --- submissions ---


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


def shown(server: Instance, headers: dict[str, str], submission: str) -> dict[str, Any]:
    return server.client.get(f"/api/v1/submissions/{submission}", headers=headers).json()


def test_a_submission_ends_with_its_last_part(both: Instance) -> None:
    open_tasks(both, both.account("olga", Role.ORGANISER))
    ada = both.participant()
    sent = send(both, ada).json()["id"]
    own = part_ids(both, sent)
    score_parts(both, sent, faces=0.1)
    assert shown(both, ada, sent)["stage"] == "running"
    both.fail(own["digits"], Fault.PARTICIPANT)
    score_parts(both, sent, authors=0.3)
    found = shown(both, ada, sent)
    assert (found["stage"], found["refunded"], found["combined_score"]) == ("scored", False, 0.13333)
    assert [(part["stage"], (part["score"] or {}).get("final_score")) for part in found["parts"]] == [
        ("scored", 0.1),
        ("failed", None),
        ("scored", 0.3),
    ]
    assert found["parts"][1]["failure"]["error_class"] == "exception"
    assert shown(both, ada, own["digits"])["part_of"] == sent


def test_a_submission_whose_parts_all_fail_has_failed(server: Instance, olga: Account) -> None:
    open_tasks(server, olga)
    ada = server.participant()
    sent = send(server, ada).json()["id"]
    for part in part_ids(server, sent).values():
        server.fail(part, Fault.HOST)
    found = shown(server, ada, sent)
    assert (found["stage"], found["refunded"], found["failure"]["fault"]) == ("failed", True, "host")


def test_cancelling_stops_every_part_and_costs_nothing_before_a_run(server: Instance, olga: Account) -> None:
    open_tasks(server, olga)
    ada = server.participant()
    sent = send(server, ada).json()["id"]
    cancelled = server.client.post(f"/api/v1/submissions/{sent}/cancel", headers=ada).json()
    assert (cancelled["stage"], cancelled["refunded"]) == ("cancelled", True)
    assert {part["stage"] for part in cancelled["parts"]} == {"cancelled"}
    assert server.client.get(f"{API}/three/quota", headers=ada).json()["used_today"] == 0


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
    assert shown(server, ada, sent)["can_cancel"] is False
    assert server.client.post(f"/api/v1/submissions/{sent}/cancel", headers=ada).status_code == 409
    server.score(own["digits"], 0.2)
    assert shown(server, ada, sent)["stage"] == "scored"


# --- boards, from the public one to the reveal ---


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


def test_a_team_that_lacks_a_task_can_be_left_out(server: Instance, olga: Account) -> None:
    open_tasks(server, olga, extra='[combine]\nby = "worst"\nmissing = "refuse"\n')
    ada, bob = (server.participant(name) for name in ("ada", "bob"))
    score_parts(server, send(server, ada).json()["id"], faces=0.1, digits=0.2, authors=0.3)
    score_parts(server, send(server, bob, "faces").json()["id"], faces=0.3)
    assert standings(board(server)) == [(1, "ada", 0.1)]


def test_the_ladder_hides_the_same_on_both_boards(server: Instance, olga: Account) -> None:
    open_tasks(server, olga, extra='[board]\nmode = "ladder"\nstep = 0.1\n')
    ada = server.participant()
    score_parts(server, send(server, ada).json()["id"], faces=0.31, digits=0.31, authors=0.31)
    score_parts(server, send(server, ada).json()["id"], faces=0.35, digits=0.35, authors=0.35)
    assert standings(board(server)) == [(1, "ada", pytest.approx(0.3))]
    assert standings(board(server, task="faces")) == [(1, "ada", pytest.approx(0.3))]


def test_from_the_close_to_the_reveal(both: Instance) -> None:
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
    assert [part["private_score"]["final_score"] for part in shown(both, ada, good)["parts"]] == [0.11, 0.12, 0.13]


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
