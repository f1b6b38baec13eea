"""Organisers in a real browser: a re-judging watched to its end, whole lists chosen, two submissions side by side."""

from collections.abc import Callable

import pytest
from sqlalchemy import select

from server.db import now
from server.deps import get_database
from server.models.evaluation import Evaluation, PublicScore, Shard
from tests.browser.conftest import Person

pytestmark = [pytest.mark.browser, pytest.mark.slow]


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


def test_a_whole_list_is_chosen_with_one_box(person: Callable[..., Person]) -> None:
    page = person("grace").go("/organise/digits/submissions")
    everything, lines = page.get_by_label("Choose all on this page"), page.locator("input[name=submission]")
    everything.check()
    assert page.locator("input[name=submission]:checked").count() == lines.count() == 100
    lines.first.uncheck()
    assert everything.evaluate("box => box.indeterminate")


def test_enter_in_the_reason_decides_nothing(person: Callable[..., Person]) -> None:
    page = person("grace").go("/organise/digits/submissions")
    page.locator("input[name=submission]").first.check()
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
