"""Sending code over HTTP, and what its team sees of it."""

import asyncio
import hashlib
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from lethe.competition.sections import Submissions
from server.accounts import accounts
from server.admin import account_deletion as deletion
from server.db import now
from server.errors import Conflict
from server.evaluations import leases
from server.evaluations.claimed_shard import ClaimedShard
from server.models.account import AuditEvent
from server.models.competition import CompetitionState, Membership, Team
from server.models.evaluation import Evaluation, RunLog, Shard
from server.models.submission import Submission
from server.submissions import submissions
from server.submissions.upload_check import Upload, check_and_store, check_for
from tests.support.instance import GOOD_CODE, PASSWORD, Instance, make_zip
from tests.support.web import Visitor


def count(server: Instance, table: type) -> int:
    with server.database.read() as session:
        return session.scalar(select(func.count()).select_from(table))


def stored(server: Instance) -> list[str]:
    return list(server.storage.keys("submissions"))


def claim(server: Instance) -> ClaimedShard | None:
    with server.database.write() as session:
        return leases.claim(session, worker="test", lease_s=60)


def test_submission_is_taken_whole(both: Instance) -> None:
    both.competition()
    headers = both.participant()
    answer = both.submit(headers, message="first try")
    assert answer.status_code == 201, answer.text
    body = answer.json()
    assert body["stage"] == "queued"
    assert body["team"] == body["submitted_by"] == "ada"
    assert body["message"] == "first try"
    assert body["sha256"] == hashlib.sha256(GOOD_CODE).hexdigest()
    assert body["progress"]["runs_done"] == 0
    assert body["progress"]["runs_total"] == 4
    assert body["quota"]["used_today"] == 1
    assert body["quota"]["remaining"] == 4
    assert answer.headers["X-Quota-Remaining"] == "4"
    assert answer.headers["Location"] == f"/api/v1/submissions/{body['id']}"
    shown = both.client.get(answer.headers["Location"], headers=headers).json()
    assert shown.pop("wait")["ahead"] == 0
    assert shown == {name: value for name, value in body.items() if name not in {"quota", "wait"}}
    with both.database.read() as session:
        actions = session.scalars(select(AuditEvent.action).where(AuditEvent.subject == body["id"])).all()
        smoke = session.scalars(select(Shard)).one()
    assert actions == ["submission.received"]
    assert (smoke.kind, smoke.n_runs) == ("smoke", 1)


def test_second_submission_stays_in_the_same_team(both: Instance) -> None:
    both.competition()
    headers = both.participant()
    assert both.submit(headers).json()["team"] == both.submit(headers).json()["team"]
    assert count(both, Team) == count(both, Membership) == 1
    assert len(stored(both)) == 1, "the same content is stored once"


def test_name_that_another_team_took_gives_a_numbered_one(server: Instance) -> None:
    competition = server.competition()
    bob = server.participant("bob")
    server.client.post(f"/api/v1/competitions/{competition.slug}/teams", headers=bob, json={"name": "ADA"})
    assert server.submit(server.participant("ada")).json()["team"] == "ada-2"


def test_zip_is_taken(server: Instance) -> None:
    server.competition()
    code = make_zip({"unlearning.py": GOOD_CODE, "lib/tools.py": b"A = 1\n"})
    assert server.submit(server.participant(), code, filename="mine.zip").status_code == 201


@pytest.mark.parametrize(
    ("code", "filename", "says", "line"),
    [
        (b"def forget(): pass\n", "a.py", "unlearning(net, retain_loader, forget_loader, validation_loader)", None),
        (b"x = 1\ndef unlearning(:\n", "a.py", "a.py, line 2: syntax error", 2),
        (b"def unlearning(net): pass\n", "a.py", "takes 1 positional", 1),
        (b"not a zip", "a.zip", "is not a zip archive", None),
        (b"", "a.py", "is empty", None),
        (GOOD_CODE, "a.tar.gz", "needs a name that ends in", None),
        (make_zip({"../unlearning.py": GOOD_CODE}), "a.zip", "leads out of the archive", None),
    ],
)
def test_submission_that_cannot_run_is_refused_and_costs_nothing(server, code, filename, says, line):
    server.competition()
    headers = server.participant()
    answer = server.submit(headers, code, filename=filename)
    assert answer.status_code == 422
    problem = answer.json()
    assert problem["type"] == "urn:lethe:problem:invalid-submission"
    assert says in problem["detail"]
    assert problem["errors"][0].get("line") == line
    assert count(server, Submission) == 0
    assert stored(server) == []
    quota = server.client.get("/api/v1/competitions/digits/quota", headers=headers).json()
    assert quota["remaining"] == 5


def test_unknown_and_hidden_competitions_are_not_found(server: Instance) -> None:
    server.competition(state=CompetitionState.DRAFT)
    headers = server.participant()
    unknown, hidden = server.submit(headers, slug="nothing"), server.submit(headers)
    assert unknown.status_code == hidden.status_code == 404
    assert hidden.json()["detail"] == "No competition is called 'digits'"


def test_without_a_token_nothing_is_read(server: Instance) -> None:
    server.competition()
    assert server.submit({}).status_code == 401


@pytest.mark.parametrize(
    ("opens_in", "closes_in", "state", "status"),
    [
        (-2, -1, CompetitionState.OPEN, 409),  # the hour decides, not who moved the state
        (-2, -1, CompetitionState.CLOSED, 409),
        (1, 2, CompetitionState.READY, 409),
        (-1, 1, CompetitionState.READY, 201),
        (-1, 1, CompetitionState.PROVISIONAL, 409),
        (-1, 1, CompetitionState.FINAL, 409),
    ],
)
def test_deadline_is_a_rule_of_the_moment(server, opens_in, closes_in, state, status):
    at = now()
    opens_at, closes_at = at + timedelta(hours=opens_in), at + timedelta(hours=closes_in)
    server.competition(state=state, opens_at=opens_at, closes_at=closes_at)
    answer = server.submit(server.participant())
    assert answer.status_code == status, answer.text
    assert count(server, Submission) == (status == 201)


def test_a_refused_upload_is_told_the_moment_in_words(server: Instance) -> None:
    headers = server.participant()
    opens_at, closes_at = datetime(2100, 5, 1, tzinfo=UTC), datetime(2024, 2, 29, 23, 59, tzinfo=UTC)
    server.competition("soon", opens_at=opens_at, closes_at=opens_at + timedelta(days=1))
    server.competition("over", opens_at=closes_at - timedelta(days=1), closes_at=closes_at)
    assert server.submit(headers, slug="soon").json()["detail"] == "soon opens on 01 May 2100, 00:00 UTC"
    over = server.submit(headers, slug="over").json()["detail"]
    assert re.fullmatch(r"over closed on 29 Feb 2024, 23:59 UTC; the file came \d+ d( \d+ h)? later", over)


def test_time_of_receipt_decides_not_time_of_storage(server: Instance) -> None:
    at = now()
    competition = server.competition(
        state=CompetitionState.CLOSED, opens_at=at - timedelta(hours=2), closes_at=at - timedelta(seconds=1)
    )
    account = server.account("ada")
    for received_at, taken in ((at - timedelta(seconds=2), True), (at - timedelta(seconds=1), False)):
        upload = Upload("a.py", GOOD_CODE, "", received_at)
        checked = asyncio.run(check_and_store(server.storage, upload, account_id=account.id, rules=Submissions()))
        if taken:
            with server.database.write() as session:
                assert submissions.accept(session, competition, account, checked).submission.received_at == received_at
        else:
            with pytest.raises(Conflict), server.database.write() as session:
                submissions.accept(session, competition, account, checked)


def test_quota_of_the_day_is_enforced_and_said(both: Instance) -> None:
    both.competition(limits={"submissions_per_day": 2})
    headers = both.participant()
    assert [both.submit(headers).status_code for _ in range(2)] == [201, 201]
    answer = both.submit(headers)
    assert answer.status_code == 429
    assert answer.json()["type"] == "urn:lethe:problem:quota-exceeded"
    assert 0 < int(answer.headers["Retry-After"]) <= 86_401
    assert answer.headers["X-Quota-Remaining"] == "0"
    assert answer.headers["X-Quota-Reset"].endswith("T00:00:00+00:00")
    quota = both.client.get("/api/v1/competitions/digits/quota", headers=headers).json()
    assert (quota["used_today"], quota["remaining"]) == (2, 0)


def test_quota_begins_again_with_the_utc_day(server: Instance) -> None:
    server.competition(limits={"submissions_per_day": 1}, opens_at=now() - timedelta(days=9))
    headers = server.participant()
    first = server.submit(headers).json()["id"]
    with server.database.write() as session:
        session.get_one(Submission, first).received_at = now() - timedelta(days=1)
    assert server.submit(headers).status_code == 201


def test_quota_in_total_is_enforced(server: Instance) -> None:
    server.competition(limits={"submissions_total": 1}, opens_at=now() - timedelta(days=9))
    headers = server.participant()
    first = server.submit(headers).json()["id"]
    with server.database.write() as session:
        session.get_one(Submission, first).received_at = now() - timedelta(days=3)
    answer = server.submit(headers)
    assert answer.status_code == 429
    assert "All 1 submissions of this competition are used" in answer.json()["detail"]


def test_cancel_before_the_first_run_gives_the_quota_back(both: Instance) -> None:
    both.competition(limits={"submissions_per_day": 1})
    headers = both.participant()
    submission = both.submit(headers).json()["id"]
    cancelled = both.client.post(f"/api/v1/submissions/{submission}/cancel", headers=headers)
    assert cancelled.status_code == 200
    assert (cancelled.json()["stage"], cancelled.json()["refunded"]) == ("cancelled", True)
    assert both.submit(headers).status_code == 201
    again = both.client.post(f"/api/v1/submissions/{submission}/cancel", headers=headers)
    assert again.status_code == 409


def test_submit_and_cancel_is_free_only_so_often(both: Instance) -> None:
    both.competition(limits={"submissions_per_day": 2})
    headers = both.participant()
    refunds = []
    for _ in range(4):
        submission = both.submit(headers).json()["id"]
        refunds.append(both.client.post(f"/api/v1/submissions/{submission}/cancel", headers=headers).json()["refunded"])
    assert refunds == [True, True, False, False]
    assert both.submit(headers).status_code == 429


def test_cancel_after_the_first_run_began_costs_the_quota(both: Instance) -> None:
    both.competition(limits={"submissions_per_day": 1})
    headers = both.participant()
    submission = both.submit(headers).json()["id"]
    assert both.client.put(f"/api/v1/submissions/{submission}/selection", headers=headers).json()["selected"]
    assert claim(both) is not None
    cancelled = both.client.post(f"/api/v1/submissions/{submission}/cancel", headers=headers).json()
    assert (cancelled["stage"], cancelled["refunded"], cancelled["selected"]) == ("cancelled", False, False)
    assert [entry["outcome"] for entry in cancelled["progress"]["attempts"]] == ["cancelled"], "its timeline ends"
    assert both.submit(headers).status_code == 429
    assert claim(both) is None, "nothing of it is queued any more"


def test_another_teams_submission_is_not_found(server: Instance) -> None:
    server.competition()
    ada, bob = server.participant("ada"), server.participant("bob")
    submission = server.submit(ada).json()["id"]
    server.submit(bob)
    for method, path in (("GET", ""), ("GET", "/code"), ("GET", "/log"), ("POST", "/cancel")):
        theirs = server.client.request(method, f"/api/v1/submissions/{submission}{path}", headers=bob)
        none = server.client.request(method, f"/api/v1/submissions/{'0' * 16}{path}", headers=bob)
        assert theirs.status_code == none.status_code == 404
        assert theirs.json()["detail"].replace(submission, "") == none.json()["detail"].replace("0" * 16, "")
        assert server.client.request(method, f"/api/v1/submissions/{submission}{path}").status_code == 401
    listed = server.client.get("/api/v1/competitions/digits/submissions", headers=bob).json()
    assert [row["team"] for row in listed] == ["bob"]


def test_own_code_comes_back_as_it_was(server: Instance) -> None:
    server.competition()
    headers = server.participant()
    submission = server.submit(headers, filename='a"\r\n b.py').json()["id"]
    answer = server.client.get(f"/api/v1/submissions/{submission}/code", headers=headers)
    assert answer.content == GOOD_CODE
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{submission}.py"'


def test_failure_is_shown_with_class_and_line_of_ones_own_file(server: Instance) -> None:
    server.competition()
    headers = server.participant()
    submission_id = server.submit(headers).json()["id"]
    with server.database.write() as session:
        row = session.get_one(Submission, submission_id)
        row.stage, row.fault, row.error_class = "failed", "participant", "exception"
        row.error = {"message": "division by zero", "exception_type": "ZeroDivisionError", "file": "submission.py"}
        row.error |= {"line": 2, "internal": "/srv/secret"}
    shown = server.client.get(f"/api/v1/submissions/{submission_id}", headers=headers)
    assert shown.json()["failure"] == {
        "fault": "participant",
        "error_class": "exception",
        "message": "division by zero",
        "exception_type": "ZeroDivisionError",
        "file": "submission.py",
        "line": 2,
        "bits": None,
        "remaining_bits": None,
        "renews_at": None,
        "withheld": False,
    }
    assert "/srv/secret" not in shown.text


def test_log_is_that_of_the_public_sample_only(server: Instance) -> None:
    server.competition()
    headers = server.participant()
    submission_id = server.submit(headers).json()["id"]
    with server.database.write() as session:
        evaluation = session.scalars(select(Evaluation)).one()
        for on_sample, text in ((True, "epoch 1\n"), (False, "label 7\n")):
            session.add(RunLog(evaluation_id=evaluation.id, run=0, on_public_sample=on_sample, text=text))
    assert server.client.get(f"/api/v1/submissions/{submission_id}/log", headers=headers).text == "epoch 1\n"


def test_upload_beyond_the_cap_is_refused(server: Instance) -> None:
    server.competition(limits={"upload_mib": 1})
    headers = server.participant()
    answer = server.submit(headers, b"#" * ((1 << 20) + 1), filename="a.py")
    assert answer.status_code == 413
    assert "at most 1 MiB" in answer.json()["detail"]
    assert stored(server) == []


def test_upload_without_length_is_capped_while_read(server: Instance) -> None:
    server.competition(limits={"upload_mib": 1})

    def body() -> Iterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.py"\r\n\r\n'
        for _ in range(64):
            yield b"#" * (1 << 16)

    headers = {**server.participant(), "Content-Type": "multipart/form-data; boundary=b"}
    answer = server.client.post("/api/v1/competitions/digits/submissions", headers=headers, content=body())
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("application/json", b"{}", 415),
        ("multipart/form-data", b"", 422),
        ("multipart/form-data; boundary=b", b"", 422),
        ("multipart/form-data; boundary=b", b"no form at all", 422),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nx\r\n--b--',
            422,
        ),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.py"\r\n\r\ncut',
            422,
        ),
    ],
)
def test_form_that_is_not_whole_is_refused(server: Instance, content_type: str, body: bytes, status: int) -> None:
    server.competition()
    headers = {**server.participant(), "Content-Type": content_type}
    answer = server.client.post("/api/v1/competitions/digits/submissions", headers=headers, content=body)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert count(server, Submission) == 0


def test_disqualified_team_is_refused(server: Instance) -> None:
    server.competition()
    headers = server.participant()
    server.submit(headers)
    with server.database.write() as session:
        session.scalars(select(Team)).one().disqualified_at = now()
    assert server.submit(headers).status_code == 409


def test_entry_point_is_stored_as_the_worker_reads_it(server: Instance) -> None:
    server.competition()
    server.submit(server.participant(), b"def unlearning(n, r, f, v, class_weights): pass\n", filename="mine.py")
    with server.database.read() as session:
        stored_point = session.scalars(select(Submission.entry_point)).one()
    assert json.loads(json.dumps(stored_point)) == {
        "file": "submission.py",
        "function": "unlearning",
        "style": "dict",
        "keywords": ["class_weights"],
        "program": "",
        "notes": [],
        "mode": "function",
    }


PLACES = ("server.api.submissions.router", "server.web.submit_pages")


@pytest.mark.parametrize("act", ["banned", "deleted"])
@pytest.mark.parametrize("place", PLACES)
def test_file_of_an_account_that_went_meanwhile_is_not_taken(server, monkeypatch, act, place):
    async def check_slowly(*arguments: Any, **options: Any) -> Any:
        with server.database.write() as session:
            account = accounts.find(session, "ada")
            if act == "banned":
                accounts.disable(session, account, actor=None, reason="cheated")
            else:
                deletion.delete(session, account, password=PASSWORD)
        return await check_for(*arguments, **options)

    server.competition()
    monkeypatch.setattr(f"{place}.check_for", check_slowly)
    if place == PLACES[0]:
        assert server.submit(server.participant("ada")).status_code == 401
    else:
        server.account("ada")
        visitor = Visitor(server)
        visitor.log_in("ada")
        answer = visitor.post("/competitions/digits/submit", files={"file": ("mine.py", GOOD_CODE)})
        assert answer.headers["location"].startswith("/login")
    with server.database.read() as session:
        for table in (Submission, Team):
            assert session.scalar(select(func.count()).select_from(table)) == 0
