"""What people do, participants and organisers, in a real browser."""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import delete, select, update

from server.db import now
from server.deps import get_database
from server.models.account import WebSession
from server.models.evaluation import Evaluation, PublicScore, Shard, ShardAttempt
from server.models.submission import Submission
from server.teams import team_repository
from tests.browser.conftest import Person

if TYPE_CHECKING:
    from playwright.sync_api import Route
pytestmark = [pytest.mark.browser, pytest.mark.slow]
CODE = b"def unlearning(net, retain_loader, forget_loader, val_loader):\n    return net\n"


def test_a_participant_registers_submits_follows_and_cancels(person: Callable[..., Person]) -> None:
    new = person()
    page = new.go("/register")
    page.fill("#name", "newcomer")
    page.fill("#password", "a long enough password")
    page.click("main button[type=submit]")
    page.get_by_text("Welcome, newcomer.").wait_for()
    page.get_by_role("link", name="Forget these digits").click()
    page.get_by_role("link", name="Submit").first.click()
    page.set_input_files("#file", {"name": "mine.py", "mimeType": "text/x-python", "buffer": CODE})
    page.get_by_text("mine.py, 0.1 KiB").wait_for()
    page.get_by_role("button", name="Submit").click()
    page.get_by_text("Received, checked and queued.").wait_for()
    page.get_by_text("Queued").first.wait_for()
    page.get_by_role("link", name="Cancel").click()
    page.get_by_role("button", name="Cancel the submission").click()
    page.get_by_text("It does not count against the quota.").wait_for()
    page.get_by_role("link", name="My submissions").click()
    page.get_by_text("Cancelled").first.wait_for()
    assert new.complaints == []


def test_refused_code_is_told_in_place_with_its_line(person: Callable[..., Person]) -> None:
    ada = person("ada")
    page = ada.go("/competitions/digits/submit")
    page.get_by_text("Paste code instead").click()
    page.fill("#code", "import torch\ndef unlearning(net, a, b, c)\n    return net\n")
    page.get_by_role("button", name="Submit").click()
    page.locator("#refused").wait_for()
    assert "line 2" in page.locator("#refused").inner_text()
    assert "def unlearning(net, a, b, c)" in page.locator("#refused .at-fault").inner_text()
    lines = page.locator("#refused .excerpt code > span")
    tops = lines.evaluate_all("lines => lines.map(line => line.getBoundingClientRect().top)")
    assert len(set(tops)) == len(tops) == 3, "each line stands on a line of its own"
    page = ada.go("/competitions/digits/submit")
    for code in (b"def unlearning(:\n", CODE):
        page.set_input_files("#file", {"name": "mine.py", "mimeType": "text/x-python", "buffer": code})
        page.click("#submit-form button[type=submit]")
        if code != CODE:
            page.wait_for_selector("#refused")
            assert "syntax error" in page.inner_text("#refused")
            assert page.evaluate("document.getElementById('file').files[0].name") == "mine.py"
    page.wait_for_url("**/submissions/*")
    assert "Received, checked and queued." in page.inner_text("body")


def end_other_quarter(submission_id: str) -> int:
    """Let half or three quarters of a running submission's shards have ended, whichever is not so. Return the runs."""
    ended_at = now() - timedelta(minutes=2)
    with get_database().write() as session:
        evaluation = Shard.evaluation_id == f"e{submission_id[1:]}"
        shards = session.scalars(select(Shard).where(evaluation, Shard.kind == "runs").order_by(Shard.first_run)).all()
        half = len(shards) // 2
        n_done = half + half // 2 if sum(shard.state == "done" for shard in shards) <= half else half
        session.execute(delete(ShardAttempt).where(ShardAttempt.shard_id.in_([shard.id for shard in shards])))
        for place, shard in enumerate(shards):
            shard.lease_expires_at = None
            shard.state, shard.runs_done = ("done", shard.n_runs) if place < n_done else ("queued", 0)
            if place < n_done:
                began = ended_at - timedelta(minutes=1)
                tried = {"worker": "worker-1", "started_at": began, "ended_at": ended_at, "outcome": "done"}
                session.add(ShardAttempt(shard_id=shard.id, attempt=1, runs_done=shard.n_runs, **tried))
        return sum(shard.n_runs for shard in shards[:n_done])


def test_progress_changes_without_reloading(person: Callable[..., Person]) -> None:
    ada = person("ada")
    page = ada.go(f"/submissions/{ada.site.seeded.running_submission_id}")
    before = page.locator(".progress-count").inner_text()
    page.evaluate("window.wasNotReloaded = true")
    done = end_other_quarter(ada.site.seeded.running_submission_id)
    page.wait_for_function("before => document.querySelector('.progress-count').textContent !== before", arg=before)
    assert int(page.locator(".progress-count").inner_text()) == done
    assert page.evaluate("window.wasNotReloaded") is True


@pytest.mark.parametrize("late", ["nothing", "hx-sse", "live"])
def test_without_a_stream_the_page_polls(person: Callable[..., Person], late: str) -> None:
    """Whichever script comes last: the stream may fail before the others are there."""
    ada = person("ada")

    def keep_waiting(route: "Route") -> None:
        time.sleep(1)
        route.continue_()

    ada.page.route("**/events", lambda route: route.abort())
    ada.page.route(f"**/{late}*.js*", keep_waiting)
    page = ada.go(f"/submissions/{ada.site.seeded.running_submission_id}")
    before = page.locator(".progress-count").inner_text()
    end_other_quarter(ada.site.seeded.running_submission_id)
    page.wait_for_function("before => document.querySelector('.progress-count').textContent !== before", arg=before)


def test_the_page_shows_the_end_when_it_comes(person: Callable[..., Person]) -> None:
    ada = person("ada")
    submission_id = ada.site.seeded.running_submission_id
    page = ada.go(f"/submissions/{submission_id}")
    with get_database().write() as session:
        session.execute(update(Submission).where(Submission.id == submission_id).values(stage="cancelled"))
    page.wait_for_function("() => document.title.startsWith('Cancelled')", timeout=90_000)
    assert page.get_by_role("link", name="Cancel").count() == 0


def test_the_board_is_searched_and_its_own_line_is_one_key_away(person: Callable[..., Person]) -> None:
    ada = person("ada", color_scheme="light")
    page = ada.go("/competitions/digits/leaderboard")
    page.keyboard.press("m")
    page.wait_for_url(f"**#team-{ada.site.seeded.own_team_id}")
    assert page.locator("tr[data-own]").evaluate("row => row.matches(':target')")
    page.locator("#q").press_sequentially("heron")
    page.wait_for_function(
        "() => { const names = [...document.querySelectorAll('.board-name')];"
        " return names.length > 0 && names.every(name => name.textContent.includes('heron')); }"
    )
    assert page.locator(".board-name").count() > 0
    assert "/competitions/digits/leaderboard?q=heron" in page.url
    for path in ("/", "/login"):  # a chosen theme is kept from page to page
        page.goto(ada.site.url + path)
        if path == "/":
            page.click("#theme")
            page.click("#theme")
        assert page.locator("html").get_attribute("data-theme") == "dark"


def test_pasted_code_is_there_again_after_an_ended_session(person: Callable[..., Person]) -> None:
    ada = person("ada")
    page = ada.go("/competitions/digits/submit")
    page.get_by_text("Paste code instead").click()
    page.fill("#code", "typed = 'with care'")
    page.fill("#message", "a note")
    with get_database().write() as session:
        session.execute(update(WebSession).values(revoked_at=now()))
    page.get_by_role("button", name="Submit").click()
    page.get_by_text("Your session has ended.").wait_for()
    page.fill("#name", "ada")
    page.fill("#password", ada.site.seeded.password)
    page.click("main button[type=submit]")
    page.wait_for_url("**/competitions/digits/submit")
    page.get_by_text("What you typed before you logged in is here again.").wait_for()
    assert page.input_value("#message") == "a note"
    assert page.input_value("#code") == "typed = 'with care'"
    ada.go("/competitions/digits/leaderboard")
    assert ada.go("/competitions/digits/submit").input_value("#code") == ""


def test_file_that_is_too_large_or_beyond_the_quota_is_not_sent(
    person: Callable[..., Person], monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = person("ada")
    page = ada.go("/competitions/digits/submit")
    for name, limit in (("big.zip", "data-max-mib"), ("big.py", "data-max-source-mib")):
        most = int(page.get_attribute("#file", limit) or "0")
        file = {"name": name, "mimeType": "application/octet-stream", "buffer": bytes((most << 20) + 1)}
        page.set_input_files("#file", file)  # type: ignore[arg-type]
        assert f"at most {most} MiB are taken" in page.inner_text("#chosen")
        page.click("#submit-form button[type=submit]")
        assert page.url.endswith("/submit")
        assert not page.evaluate("document.getElementById('submit-form').checkValidity()")
    monkeypatch.setattr(team_repository, "count_counted", lambda *_, **__: 99)
    page = ada.go("/competitions/digits/submit")
    page.get_by_text("submissions of today are used").wait_for()
    assert page.is_disabled("#submit-form button[type=submit]")


@pytest.mark.parametrize("answer", ["gateway", "none"])
def test_file_whose_answer_is_lost_is_not_sent_twice(person: Callable[..., Person], answer: str) -> None:
    ada = person("ada")
    page = ada.go("/competitions/digits/submit")
    sent: list[str] = []

    def lose(route: "Route") -> None:
        sent.append(route.request.method)
        if answer == "gateway":
            route.fulfill(status=504, content_type="text/html", body="<h1>504 Gateway Time-out</h1>")
        else:
            route.abort("connectionreset")

    page.route(lambda url: url.endswith("/digits/submit"), lose)
    page.set_input_files("#file", {"name": "mine.py", "mimeType": "text/x-python", "buffer": CODE})
    page.click("#submit-form button[type=submit]")
    page.wait_for_selector("#refused")
    assert "It may have been received: see My submissions" in page.inner_text("#refused")
    assert sent == ["POST"]
    assert page.evaluate("document.getElementById('file').files[0].name") == "mine.py"
    page.click("#refused a")
    page.wait_for_url("**/digits/submissions")


def end_all(score: float) -> None:
    """Do what workers would: every new evaluation of a re-judging done and scored."""
    with get_database().write() as session:
        for evaluation in session.scalars(select(Evaluation).where(Evaluation.rejudging_id != "")).all():
            for shard in session.scalars(select(Shard).where(Shard.evaluation_id == evaluation.id)).all():
                shard.state, shard.runs_done = "done", shard.n_runs
            evaluation.state, evaluation.finished_at = "scored", now()
            figures = dict.fromkeys(("final_score", "forgetting_quality", "retain_ratio", "test_ratio"), score)
            ids = {"evaluation_id": evaluation.id, "submission_id": evaluation.submission_id}
            session.add(PublicScore(**ids, **figures, scorer_version="1", details={}))


def test_a_re_judging_is_watched_and_applied(person: Callable[..., Person]) -> None:
    grace = person("grace")
    page = grace.go("/organise/digits/rejudgings")
    page.get_by_label("Those of a team").check()
    page.get_by_label("Name of the team").fill("ada")
    page.get_by_label("Reason").fill("the cap was wrong")
    page.get_by_role("button", name="Preview").click()
    page.get_by_text("The form chooses").wait_for()
    page.get_by_role("button", name="Start re-judging").click()
    page.get_by_role("heading", name="Being scored again").wait_for()
    end_all(0.5)
    page.get_by_role("heading", name="Apply", exact=True).wait_for(timeout=60_000)  # the page has loaded itself again
    page.get_by_text("Every submission has ended").wait_for()
    page.get_by_label("Apply the new scores").check()
    page.get_by_role("button", name="Apply").click()
    page.get_by_text("Applied: the new scores count.").wait_for()
    assert grace.complaints == []


def test_a_list_is_chosen_with_one_box_and_enter_decides_nothing(person: Callable[..., Person]) -> None:
    page = person("grace").go("/organise/digits/submissions")
    everything, lines = page.get_by_label("Choose all on this page"), page.locator("input[name=submission]")
    everything.check()
    assert page.locator("input[name=submission]:checked").count() == lines.count() == 100
    lines.first.uncheck()
    assert everything.evaluate("box => box.indeterminate")
    everything.check()
    everything.uncheck()
    lines.first.check()
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.method))
    page.get_by_label("Reason, for the audit log").fill("they asked for it")
    page.keyboard.press("Enter")
    page.wait_for_timeout(500)
    assert "POST" not in sent
    page.get_by_role("button", name="Disqualify").click()
    page.get_by_text("1 disqualified.").wait_for()


def test_two_submissions_are_compared_from_what_is_offered(person: Callable[..., Person]) -> None:
    grace = person("grace")
    page = grace.go(f"/organise/digits/submissions/{grace.site.seeded.scored_submission_id}")
    other = page.locator("#others option").first.get_attribute("value")
    page.get_by_label("Submission to compare with").fill(str(other))
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("heading", name="Two submissions, on the public split").wait_for()
    page.locator("figure[data-chart] canvas").nth(1).wait_for(timeout=60_000)
    assert grace.complaints == []
