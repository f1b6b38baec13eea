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

C = "/api/v1/competitions/digits"


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
    code = make_zip({"unlearning.py": GOOD_CODE, "lib/tools.py": b"A = 1\n"})
    assert both.submit(headers, code, filename="mine.zip").status_code == 201


def test_submission_that_cannot_run_is_refused_and_costs_nothing(server: Instance) -> None:
    server.competition()
    server.competition("hidden", state=CompetitionState.DRAFT)
    headers = server.participant()
    refused: list[tuple[bytes, str, str, int | None]] = [
        (b"def forget(): pass\n", "a.py", "unlearning(net, retain_loader, forget_loader, validation_loader)", None),
        (b"x = 1\ndef unlearning(:\n", "a.py", "a.py, line 2: syntax error", 2),
        (b"def unlearning(net): pass\n", "a.py", "takes 1 positional", 1),
        (b"not a zip", "a.zip", "is not a zip archive", None),
        (b"", "a.py", "is empty", None),
        (GOOD_CODE, "a.tar.gz", "needs a name that ends in", None),
        (make_zip({"../unlearning.py": GOOD_CODE}), "a.zip", "leads out of the archive", None),
    ]
    for code, filename, says, line in refused:
        answer = server.submit(headers, code, filename=filename)
        problem = answer.json()
        assert (answer.status_code, problem["type"]) == (422, "urn:lethe:problem:invalid-submission")
        assert says in problem["detail"]
        assert problem["errors"][0].get("line") == line
    unknown, hidden = server.submit(headers, slug="nothing"), server.submit(headers, slug="hidden")
    assert unknown.status_code == hidden.status_code == 404
    assert hidden.json()["detail"] == "No competition is called 'hidden'"
    assert server.submit({}).status_code == 401
    assert count(server, Submission) == 0
    assert stored(server) == []
    assert server.client.get(f"{C}/quota", headers=headers).json()["remaining"] == 5


def test_deadline_is_a_rule_of_the_moment(server: Instance) -> None:
    at, ada = now(), server.participant()
    for number, (opens_in, closes_in, state, status) in enumerate(
        [
            (-2, -1, CompetitionState.OPEN, 409),  # the hour decides, not who moved the state
            (-2, -1, CompetitionState.CLOSED, 409),
            (1, 2, CompetitionState.READY, 409),
            (-1, 1, CompetitionState.READY, 201),
            (-1, 1, CompetitionState.PROVISIONAL, 409),
            (-1, 1, CompetitionState.FINAL, 409),
        ]
    ):
        opens_at, closes_at = at + timedelta(hours=opens_in), at + timedelta(hours=closes_in)
        server.competition(f"c{number}", state=state, opens_at=opens_at, closes_at=closes_at)
        assert server.submit(ada, slug=f"c{number}").status_code == status, (opens_in, state)
    assert count(server, Submission) == 1
    opens_at, closes_at = datetime(2100, 5, 1, tzinfo=UTC), datetime(2024, 2, 29, 23, 59, tzinfo=UTC)
    server.competition("soon", opens_at=opens_at, closes_at=opens_at + timedelta(days=1))
    server.competition("over", opens_at=closes_at - timedelta(days=1), closes_at=closes_at)
    assert server.submit(ada, slug="soon").json()["detail"] == "soon opens on 01 May 2100, 00:00 UTC"
    over = server.submit(ada, slug="over").json()["detail"]
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
    quota = both.client.get(f"{C}/quota", headers=headers).json()
    assert (quota["used_today"], quota["remaining"]) == (2, 0)


def test_quota_begins_again_with_the_utc_day_but_not_in_total(server: Instance) -> None:
    limits = {"submissions_per_day": 1, "submissions_total": 2}
    server.competition(limits=limits, opens_at=now() - timedelta(days=9))
    ada = server.participant()
    for _ in range(2):
        sent = server.submit(ada)
        assert sent.status_code == 201
        with server.database.write() as session:
            session.get_one(Submission, sent.json()["id"]).received_at = now() - timedelta(days=1)
    left = server.client.get(f"{C}/quota", headers=ada).json()
    assert (left["remaining"], left["remaining_today"], left["remaining_total"]) == (0, 1, 0)
    answer = server.submit(ada)
    assert answer.status_code == 429
    assert "All 2 submissions of this competition are used" in answer.json()["detail"]


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
    listed = server.client.get(f"{C}/submissions", headers=bob).json()
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
    error = {"message": "division by zero", "exception_type": "ZeroDivisionError", "file": "submission.py", "line": 2}
    with server.database.write() as session:
        row = session.get_one(Submission, submission_id)
        row.stage, row.fault, row.error_class = "failed", "participant", "exception"
        row.error = error | {"internal": "/srv/secret"}
        evaluation = session.scalars(select(Evaluation)).one()
        for on_sample, text in ((True, "epoch 1\n"), (False, "label 7\n")):
            session.add(RunLog(evaluation_id=evaluation.id, run=0, on_public_sample=on_sample, text=text))
    shown = server.client.get(f"/api/v1/submissions/{submission_id}", headers=headers)
    budget = {"bits": None, "remaining_bits": None, "renews_at": None, "withheld": False}
    assert shown.json()["failure"] == {"fault": "participant", "error_class": "exception", **error, **budget}
    assert "/srv/secret" not in shown.text
    assert server.client.get(f"/api/v1/submissions/{submission_id}/log", headers=headers).text == "epoch 1\n"


def test_upload_beyond_the_cap_is_refused(server: Instance) -> None:
    server.competition(limits={"upload_mib": 1})
    headers = server.participant()
    answer = server.submit(headers, b"#" * ((1 << 20) + 1), filename="a.py")
    assert (answer.status_code, "at most 1 MiB" in answer.json()["detail"]) == (413, True)

    def body() -> Iterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.py"\r\n\r\n'
        for _ in range(64):
            yield b"#" * (1 << 16)

    without_length = headers | {"Content-Type": "multipart/form-data; boundary=b"}
    answer = server.client.post(f"{C}/submissions", headers=without_length, content=body())
    assert answer.status_code == 413, "it is capped while it is read"
    assert stored(server) == []


def test_form_that_is_not_whole_is_refused(server: Instance) -> None:
    server.competition()
    ada, form = server.participant(), "multipart/form-data; boundary=b"
    disposition = b'--b\r\nContent-Disposition: form-data; name="file"'
    for content_type, body, status in (
        ("application/json", b"{}", 415),
        ("multipart/form-data", b"", 422),
        (form, b"", 422),
        (form, b"no form at all", 422),
        (form, disposition + b"\r\n\r\nx\r\n--b--", 422),
        (form, disposition + b'; filename="a.py"\r\n\r\ncut', 422),
    ):
        headers = ada | {"Content-Type": content_type}
        answer = server.client.post(f"{C}/submissions", headers=headers, content=body)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
    assert count(server, Submission) == 0


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


@pytest.mark.parametrize(("act", "place"), [("banned", PLACES[0]), ("deleted", PLACES[1])])
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
        visitor = Visitor(server, "ada")
        answer = visitor.post("/competitions/digits/submit", files={"file": ("mine.py", GOOD_CODE)})
        assert answer.headers["location"].startswith("/login")
    with server.database.read() as session:
        for table in (Submission, Team):
            assert session.scalar(select(func.count()).select_from(table)) == 0


def test_cancel_before_the_first_run_gives_the_quota_back_so_often(both: Instance) -> None:
    both.competition(limits={"submissions_per_day": 2})
    headers = both.participant()
    refunds = []
    for _ in range(4):
        path = f"/api/v1/submissions/{both.submit(headers).json()['id']}/cancel"
        cancelled = both.client.post(path, headers=headers)
        assert (cancelled.status_code, cancelled.json()["stage"]) == (200, "cancelled")
        refunds.append(cancelled.json()["refunded"])
        assert both.client.post(path, headers=headers).status_code == 409
    assert refunds == [True, True, False, False]
    assert both.submit(headers).status_code == 429
