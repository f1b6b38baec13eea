"""Submitting, and following what becomes of it."""

from datetime import timedelta

import pytest
from sqlalchemy import select

from lethe.client.bundle import verify_receipt
from lethe.competition.visibility import Visibility
from server.competitions import competitions
from server.config import get_settings
from server.datetime_format import in_words
from server.db import now
from server.evaluations import leases
from server.evaluations.claimed_shard import ShardFailure
from server.models.competition import Competition
from server.models.evaluation import Evaluation, RunLog, Shard, ShardAttempt
from server.models.submission import Fault, Submission
from server.models.worker import Worker
from tests.support.instance import GOOD_CODE, Instance, make_zip
from tests.support.scores import add_score
from tests.support.web import Visitor, plain_text

SUBMIT = "/competitions/digits/submit"
MINE = "/competitions/digits/submissions"


@pytest.fixture
def ada(server: Instance, visitor: Visitor) -> Visitor:
    """A participant who is logged in."""
    server.account("ada")
    visitor.log_in("ada")
    return visitor


def send(visitor: Visitor, code: bytes = GOOD_CODE, *, name: str = "mine.py", **fields: str) -> str:
    """Upload a file through the form. Return the address that the answer leads to."""
    answer = visitor.post(SUBMIT, fields, files={"file": (name, code)})
    assert answer.status_code == 303, plain_text(answer.text)
    return str(answer.headers["location"])


def test_an_uploaded_file_is_queued_and_shown(server: Instance, ada: Visitor) -> None:
    server.competition()
    mine = send(ada, message="first try")
    page = ada.get(mine).text
    for words in ("first try", "Queued", "0 of 4 runs"):
        assert words in plain_text(page)
    assert "<title>Queued · " in page
    assert "first try" in ada.get(MINE).text
    for path in (f"{mine}/progress", f"{MINE}/rows"):
        part = ada.get(path).text
        assert ("<html" in part, "Queued" in part) == (False, True), path
    assert 'data-title="Queued · ' in ada.get(f"{mine}/progress").text
    assert '<span class="nf">unlearning</span>' in ada.get(f"{mine}/source").text
    pasted = ada.post(SUBMIT, {"code": GOOD_CODE.decode().replace("\n", "\r\n")}, files={"file": ("", b"")})
    assert ada.get(f"{pasted.headers['location']}/code").content == GOOD_CODE
    assert send(ada, make_zip({"submission.py": GOOD_CODE}), name="mine.zip").startswith("/submissions/")


def test_name_of_a_file_holds_nothing_that_a_terminal_obeys(server: Instance, ada: Visitor) -> None:
    server.competition()
    body = b'--b\r\nContent-Disposition: form-data; name="csrf_token"\r\n\r\n%b\r\n' % ada.token(SUBMIT).encode()
    name = "../a\x1b[31m\u202e\x00b.py".encode()
    body += b'--b\r\nContent-Disposition: form-data; name="file"; filename="%b"\r\n\r\n%b\r\n--b--\r\n' % (
        name,
        GOOD_CODE,
    )
    answer = ada.client.post(
        SUBMIT, content=body, headers={"Content-Type": "multipart/form-data; boundary=b"}, follow_redirects=False
    )
    assert answer.status_code == 303, plain_text(answer.text)
    with server.database.read() as session:
        assert session.scalars(select(Submission.filename)).one() == "a_[31m__b.py"


def test_what_cannot_be_taken_is_refused(server: Instance, ada: Visitor) -> None:
    server.competition(limits={"upload_mib": 1})
    large = b"#" * (1 << 20) + b"\n" + GOOD_CODE  # in the field for pasted code no file is read beyond the limit
    for name, code, status, words in (
        ("", b"", 422, "choose a file, or paste code"),
        ("mine.zip", b"x" * (4 << 20), 413, ""),
        ("mine.py", large, 413, "A submission has at most 1 MiB"),
    ):
        answer = ada.post(SUBMIT, {}, files={"file": (name, code)})
        assert (answer.status_code, words in plain_text(answer.text)) == (status, True), name
    without = ada.client.post(SUBMIT, files={"file": ("mine.py", GOOD_CODE)}, follow_redirects=False)
    assert without.status_code == 403, "it has no form's token"
    with server.database.read() as session:
        assert session.query(Submission).count() == 0
    server.competition("large", limits={"upload_mib": 5})
    for slug, words in (("digits", "1 MiB"), ("large", "5 MiB, one Python file up to 2 MiB")):
        assert f". Up to {words}." in plain_text(ada.get(f"/competitions/{slug}/submit").text)
        assert f"File up to {words} All runs" in plain_text(ada.get(f"/competitions/{slug}").text)


def test_a_syntax_error_is_shown_with_its_line_and_costs_nothing(server: Instance, ada: Visitor) -> None:
    server.competition()
    bad = b"import torch\n\ndef unlearning(net, a, b, c)\n    return net\n"
    answer = ada.post(SUBMIT, {"message": "kept"}, files={"file": ("mine.py", bad)})
    page = plain_text(answer.text)
    assert answer.status_code == 422
    assert page.count("line 3") == 1
    assert "def unlearning(net, a, b, c)" in page
    assert 'value="kept"' in answer.text
    assert "5 of 5" in page


def test_form_is_replaced_by_the_moment_where_nothing_is_taken(server: Instance, ada: Visitor) -> None:
    closed_at = now() - timedelta(hours=1)
    server.competition(opens_at=now() - timedelta(days=2), closes_at=closed_at)
    server.competition("later", opens_at=now() + timedelta(days=2), closes_at=now() + timedelta(days=9))
    for path, title, words in (
        (SUBMIT, "Closed", "The competition closed on"),
        ("/competitions/later/submit", "Not open yet", "in 1 day"),
    ):
        page = ada.get(path).text
        assert f"<title>{title} · Submit" in page
        assert words in plain_text(page)
        assert 'name="file"' not in page
    answer = ada.post(SUBMIT, {}, page="/", files={"file": ("mine.py", GOOD_CODE)})
    assert answer.status_code == 409
    assert f"digits closed on {in_words(closed_at)}; the file came 1 h later" in plain_text(answer.text)


def test_scores_stand_beside_the_oracle_and_private_ones_wait_for_the_reveal(server: Instance, ada: Visitor) -> None:
    competition = server.competition()
    mine = send(ada)
    with server.database.write() as session:
        submission = session.query(Submission).one()
        submission.stage, submission.selected = "scored", True
        session.query(Evaluation).one().is_current = False
        for visibility, score in ((Visibility.PUBLIC, 0.05), (Visibility.PRIVATE, 0.17171)):
            split = competitions.get_split(session, competition, visibility)
            split.oracle = {"final_score": 0.2}
            add_score(session, submission, split, score, scorer_version="x")
    for state, is_shown in (("open", False), ("provisional", False), ("final", True)):
        with server.database.write() as session:
            session.get_one(Competition, competition.id).state = state
        for path in (mine, MINE):
            page = plain_text(ada.get(path).text)
            assert "0.05000" in page
            assert "25 %" in page
            assert ("0.17171" in page) is is_shown
        assert ("Public Private" in page) is is_shown
        assert ("left today" in page) is (state == "open")


def test_the_quota_is_shown_before_and_after(server: Instance, ada: Visitor) -> None:
    server.competition(limits={"submissions_per_day": 1})
    assert "1 of 1" in plain_text(ada.get(SUBMIT).text)
    send(ada)
    page = plain_text(ada.get(SUBMIT).text)
    assert "0 of 1" in page
    assert "All 1 submissions of today are used" in page


def test_cancelling_asks_first_and_says_what_it_costs(server: Instance, ada: Visitor) -> None:
    server.competition()
    mine = send(ada)
    asked = plain_text(ada.get(f"{mine}/cancel").text)
    assert "does not count against your quota" in " ".join(asked.split())
    with server.database.write() as session:
        assert leases.claim(session, worker="w", lease_s=60)
    again = ada.post(f"{mine}/cancel", {"said": "free"}, page=mine)
    assert again.headers["location"] == f"{mine}/cancel", "what was said is no longer true"
    assert "counts against your quota" in " ".join(plain_text(ada.get(f"{mine}/cancel").text).split())
    ada.post(f"{mine}/cancel", {"said": "counts"}, page=mine)
    assert "in progress" not in plain_text(ada.get(mine).text)
    assert ada.get(f"{mine}/cancel").headers["location"] == mine
    free = send(ada)
    ada.post(f"{free}/cancel", page=free)
    page = plain_text(ada.get(free).text)
    assert "Cancelled" in page
    assert "does not count" in page
    answer = ada.get(f"{free}/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.count("event: end") == 1
    assert "data: " in answer.text
    assert "Cancelled" in answer.text
    assert "event: end" in ada.get(f"{MINE}/events").text, "all of the list have ended"


def test_place_in_the_queue_is_told_before_the_first_run(server: Instance, ada: Visitor) -> None:
    server.competition()
    with server.database.write() as session:
        session.add(Worker(name="w-1", device="cpu", memory_mib=1, versions={}))
    server.submit(server.participant("eve"))
    mine = send(ada)
    assert "about 1 submission before it" in plain_text(ada.get(f"{mine}/progress").text)
    with server.database.write() as session:
        assert leases.claim(session, worker="w", lease_s=60)
    assert "next in the queue" in plain_text(ada.get(f"{mine}/progress").text)


def test_progress_and_the_story_of_lost_runs_are_told(server: Instance, ada: Visitor) -> None:
    server.competition()
    mine = send(ada)
    with server.database.write() as session:
        evaluation = session.query(Evaluation).one()
        session.query(Submission).one().stage = "running"
        submission = session.query(Submission).one()
        ids = {"evaluation_id": evaluation.id, "split_id": evaluation.split_id}
        ids |= {"team_id": submission.team_id, "competition_id": submission.competition_id}
        shard = Shard(**ids, first_run=2, n_runs=2, runs_done=1, attempt=2)
        before = Shard(**ids, first_run=0, n_runs=2, runs_done=2, attempt=1)
        session.add_all((shard, before))
        session.flush()
        began = now() - timedelta(minutes=5)
        done = {"attempt": 1, "outcome": "done", "ended_at": began + timedelta(minutes=2)}
        session.add(ShardAttempt(shard_id=before.id, worker="secret-host-7", started_at=began, **done))
        lost = {"attempt": 1, "outcome": "lost", "ended_at": began + timedelta(seconds=5)}
        for values in (lost, {"attempt": 2}):
            session.add(ShardAttempt(shard_id=shard.id, worker="secret-host-7", started_at=began, **values))
    page = ada.get(mine).text
    assert "2 of 4 runs" in plain_text(page)
    assert "Runs 3 to 4 lost their worker; resumed elsewhere" in page
    assert "Runs 1 to 4 in progress, attempt 2" in page
    assert "<title>2 of 4 runs" in page
    assert "secret-host-7" not in page


def fail_on(server: Instance, log: str, **error: object) -> None:
    """Do what a worker does whose run raised an exception after a smoke run that printed `log`."""
    with server.database.write() as session:
        submission = session.query(Submission).one()
        submission.stage, submission.fault, submission.error_class = "failed", "participant", "exception"
        submission.error = {"message": "It broke.", "exception_type": "KeyError", **error}
        evaluation_id = session.query(Evaluation).one().id
        session.query(RunLog).delete()
        for run, text in ((0, log), (1, "hidden words")):
            session.add(RunLog(evaluation_id=evaluation_id, run=run, on_public_sample=run == 0, text=text))


def test_submit_page_says_how_many_free_failures_are_left(server: Instance, ada: Visitor) -> None:
    server.competition()
    send(ada)
    with server.database.write() as session:
        shard = leases.claim(session, worker="w", lease_s=60)
        assert shard is not None
        failure = ShardFailure(fault=Fault.PARTICIPANT, error_class="exception", message="it raised", run=0)
        leases.fail(session, shard, failure, runs_done=0)
    page = plain_text(ada.get(SUBMIT).text)
    assert "Left today 5 of 5" in page
    assert "Free failures 19 left today, on the sample" in page


def test_a_receipt_is_read_and_downloaded_once_there_is_a_score(server: Instance, ada: Visitor) -> None:
    server.competition()
    address = send(ada)
    assert "Receipt" not in plain_text(ada.get(address).text)
    assert ada.get(f"{address}/receipt").status_code == 404
    server.score(address.rsplit("/", 1)[-1], 0.25)
    assert f'href="{address}/receipt"' in ada.get(address).text
    receipt = ada.get(f"{address}/receipt.json").json()
    verify_receipt(receipt)
    page = plain_text(ada.get(f"{address}/receipt").text)
    assert receipt["signature"] in page
    assert "Final score 0.25000" in page
    assert "Exact bits" not in page
    assert ada.get(f"{address}/receipt", params={"split": "private"}).status_code == 404


def test_uploads_are_limited_for_each_account(server: Instance, ada: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    server.competition(limits={"submissions_per_day": 20})
    monkeypatch.setenv("LETHE_UPLOADS_PER_10_MIN", "2")
    get_settings.cache_clear()
    send(ada)
    headers = server.headers(server.account("bob"))
    refused = ada.post(SUBMIT, files={"file": ("mine.py", b"def f(:")})
    assert refused.status_code == 422, "what cannot be run is counted too"
    limited = ada.post(SUBMIT, files={"file": ("mine.py", GOOD_CODE)})
    assert limited.status_code == 429
    assert "2 files were sent within 10 min" in plain_text(limited.text)
    assert 0 < int(limited.headers["retry-after"]) <= 600
    assert [server.submit(headers).status_code for _ in range(3)] == [201, 201, 429]
    problem = server.submit(headers)
    assert problem.json()["type"] == "urn:lethe:problem:rate-limited"
    assert 0 < int(problem.headers["retry-after"]) <= 600


def test_failure_is_shown_as_far_as_its_run_may_be(server: Instance, ada: Visitor) -> None:
    server.competition()
    mine = send(ada, name="theirs.py")
    where = {"file": "submission.py", "line": 2}
    fail_on(server, "epoch <1>\nTraceback (most recent call last):\n  deep\nKeyError: 'x'\n", **where)
    page = ada.get(mine).text
    assert page.count("KeyError: &#39;x&#39;") == 3  # first of all, at the end of the traceback, in the whole output
    assert "<strong>KeyError: &#39;x&#39;</strong>" in page
    assert 'class="at-fault"><span class="line-number">2</span>    return net' in page
    for words in ("line 2", "What to do:"):
        assert words in plain_text(page)
    assert "epoch &lt;1&gt;" in page
    fail_on(server, "Traceback (most recent call last):\n  File \"/submission/submission.py\", line 2\nKeyError: 'x'\n")
    page = ada.get(mine).text
    assert "File &#34;theirs.py&#34;, line 2" in page
    assert "<strong>KeyError: &#39;x&#39;</strong>" in page, "what was raised stands first"
    assert page.count("KeyError: &#39;x&#39;") == 2, "a traceback that is the whole output is shown once"
    assert "It broke." not in page
    assert "The smoke run ended with:" in page
    assert "The smoke run passed" not in page
    fail_on(server, "epoch 1\n", bits=6)
    page = plain_text(ada.get(mine).text)
    assert "The smoke run passed: hidden data differ from the public sample" in page
    assert "The smoke run ended with:" not in page
    assert "Output of the smoke run epoch 1" in page
    assert "KeyError : It broke." in page, "of hidden data nothing is told but this"
    assert "hidden words" not in page
    with server.database.write() as session:
        submission = session.query(Submission).one()
        submission.fault, submission.error_class, submission.refunded = "host", "host-fault", True
    page = plain_text(ada.get(mine).text)
    assert "Platform failure" in page
    assert "not counted against the quota" in page
