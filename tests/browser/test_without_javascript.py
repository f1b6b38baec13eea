"""Scripts only make things quicker: both journeys, from beginning to end, by forms and links alone."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select, update

from server.db import now
from server.deps import get_database
from server.models.competition import Competition, Split
from server.models.evaluation import Evaluation, PublicScore, Shard
from server.models.submission import Submission
from tests.browser.conftest import Person

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CODE = b"def unlearning(net, retain_loader, forget_loader, val_loader):\n    return net\n"
PASSWORD = "a long enough password"


def test_a_participants_whole_journey(person: Callable[..., Person]) -> None:
    somebody = person(java_script_enabled=False)
    page = somebody.go("/register")
    page.fill("#name", "newcomer")
    page.fill("#password", PASSWORD)
    press(page, "Register", within="main")
    says(page, "Welcome, newcomer.")
    page.get_by_role("link", name="Forget these digits").click()
    page.get_by_role("link", name="Team", exact=True).click()
    page.get_by_label("Team's name").fill("Amnesia")
    press(page, "Create the team")
    press(page, "Invite")
    assert "/team/join?token=" in page.locator("main").inner_text()
    page.get_by_role("link", name="Submit", exact=True).first.click()
    page.set_input_files("#file", {"name": "mine.py", "mimeType": "text/x-python", "buffer": CODE})
    press(page, "Submit", within="main")
    says(page, "Received, checked and queued.")
    submission = page.url.rsplit("/", 1)[1]
    score(submission, 0.12345)
    page.reload()
    says(page, "0.12345")
    page.get_by_role("link", name="My submissions").click()
    press(page, "Choose mine.py")
    says(page, "Chosen for the private leaderboard.")
    press(page, "Deselect mine.py")
    says(page, "No longer chosen.")
    page.get_by_role("link", name="Leaderboard", exact=True).first.click()
    page.get_by_label("Find a team").fill("amnesia")
    page.get_by_label("Find a team").press("Enter")
    says(page, "Amnesia")
    page.locator("summary", has_text="newcomer").click()
    page.get_by_role("link", name="Account").click()
    page.get_by_label("Label").fill("my laptop")
    press(page, "Create token")
    says(page, "Copy the token now")
    assert page.locator("#token").inner_text().startswith("lethe_")
    page.goto(f"{somebody.site.url}/account")
    assert page.locator("#token").count() == 0
    press(page, "Revoke my laptop")
    says(page, "The token is revoked.")
    page.locator("summary", has_text="newcomer").click()
    press(page, "Log out", within="header")
    page.get_by_role("banner").get_by_role("link", name="Log in").wait_for()


def test_an_organisers_whole_journey(person: Callable[..., Person]) -> None:
    grace = person("grace", java_script_enabled=False)
    page = grace.go("/organise/new")
    file = page.locator("#text").input_value().replace("my-competition", "second")
    page.fill("#text", file)
    press(page, "Create the draft")
    says(page, "Only its organisers see it.")
    page.get_by_role("link", name="Edit the file").click()
    page.fill("#text", file.replace("n_models = 512", "n_models = 64"))
    press(page, "Check and preview")
    says(page, "64")
    press(page, "Replace the file")
    set_ready("second")
    page.goto(f"{grace.site.url}/organise/second")
    page.get_by_label("Reason").first.fill("everything is prepared")
    press(page, "Open now")
    says(page, "The competition is open.")
    seeded = grace.site.seeded
    page.goto(f"{grace.site.url}/organise/digits/submissions/{seeded.running_submission_id}")
    act(page, "Cancel", "it was sent twice")
    says(page, "1 cancelled.")
    act(page, "Disqualify", "copied from another team")
    says(page, "1 disqualified.")
    page.goto(f"{grace.site.url}/organise/digits/submissions?stage=failed")
    page.locator("input[name=submission]").first.check()
    act(page, "Run again", "a worker had a bad disk")
    says(page, "1 queued again.")
    finish("digits")
    page.goto(f"{grace.site.url}/organise/digits")
    says(page, "No final waits for a decision")
    page.get_by_label("Reason").first.fill("the results were checked")
    press(page, "Reveal the private leaderboard")
    says(page, "The private leaderboard is revealed.")
    page.get_by_role("link", name="Audit log").click()
    for reason in ("it was sent twice", "copied from another team", "the results were checked"):
        says(page, reason)


def press(page: "Page", name: str, *, within: str = "body") -> None:
    page.locator(within).get_by_role("button", name=name, exact=True).first.click()


def says(page: "Page", text: str) -> None:
    page.get_by_text(text).first.wait_for()


def act(page: "Page", name: str, reason: str) -> None:
    page.get_by_label("Reason, for the audit log").fill(reason)
    press(page, name)


def score(submission_id: str, value: float) -> None:
    """Do what workers would: all runs done, and a score."""
    with get_database().write() as session:
        evaluation = session.scalars(select(Evaluation).where(Evaluation.submission_id == submission_id)).one()
        session.execute(update(Shard).where(Shard.evaluation_id == evaluation.id).values(state="done"))
        evaluation.state, evaluation.finished_at = "scored", now()
        figures = dict.fromkeys(("final_score", "forgetting_quality", "retain_ratio", "test_ratio"), value)
        ids = {"evaluation_id": evaluation.id, "submission_id": submission_id}
        session.add(PublicScore(**ids, **figures, scorer_version="1", details={}))
        session.execute(update(Submission).where(Submission.id == submission_id).values(stage="scored"))


def set_ready(slug: str) -> None:
    """Do what preparing would: both splits are ready, and so is the competition."""
    with get_database().write() as session:
        competition = session.scalars(select(Competition).where(Competition.slug == slug)).one()
        competition.state = "ready"
        values = {"state": "ready", "manifest_sha256": "0" * 64, "prepared_at": now()}
        session.execute(update(Split).where(Split.competition_id == competition.id).values(**values))


def finish(slug: str) -> None:
    """Let a competition have ended without a final: its private leaderboard is computed and sealed."""
    with get_database().write() as session:
        values = {"state": "provisional", "closes_at": now(), "closed_at": now(), "frozen_at": now()}
        session.execute(update(Competition).where(Competition.slug == slug).values(**values))
