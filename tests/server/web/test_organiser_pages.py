"""The organisers' pages: who may enter, what is shown, what each act does and leaves in the audit log."""

import re
from datetime import timedelta
from html import unescape
from pathlib import Path

import pytest

from lethe.competition.visibility import Visibility
from server.competitions import competitions
from server.db import now
from server.models.account import Role
from server.models.competition import Competition, SplitState
from server.models.evaluation import Evaluation, Shard
from server.models.submission import Submission
from server.teams.teams import PAGE_SIZE
from tests.support.instance import Instance, competition_toml
from tests.support.organised import actions, add_scored
from tests.support.scores import add_submission, add_team
from tests.support.web import Visitor, counted_queries, plain_text

TEMPLATES = Path(competitions.__file__).parents[1] / "templates"
PAGES = ("", "/submissions", "/teams", "/rejudgings", "/limits", "/words", "/exports", "/splits/public", "/audit")


def test_an_organiser_does_not_see_the_competitions_of_others(server: Instance, visitor: Visitor) -> None:
    server.account("otto", Role.ORGANISER)
    server.competition()
    visitor.log_in("otto")
    assert "Forgetting digits" not in visitor.get("/organise").text


def test_the_dashboard_says_that_everything_is_healthy(server: Instance, visitor: Visitor, digits: Competition) -> None:
    page = plain_text(visitor.get("/organise").text)
    assert "Everything is healthy." in page
    assert "Nothing waits." in page


def test_the_dashboard_warns_of_waiting_runs_without_a_worker(server, visitor, digits):
    with server.database.write() as session:
        public = competitions.get_split(session, digits, Visibility.PUBLIC)
        submission = add_submission(session, add_team(session, digits, "ada"), stage="running")
        evaluation = Evaluation(submission_id=submission.id, split_id=public.id, scorer_version="1", n_runs=4)
        session.add(evaluation)
        session.flush()
        session.add(
            Shard(
                evaluation_id=evaluation.id,
                team_id=submission.team_id,
                split_id=public.id,
                competition_id=digits.id,
                first_run=0,
                n_runs=4,
                queued_at=now() - timedelta(hours=1),
            )
        )
    page = plain_text(visitor.get("/organise").text)
    assert "no worker has been heard of" in page
    assert "The oldest run in the queue came" in page
    assert "1 hour ago" in page


def test_a_split_that_failed_is_a_warning(server: Instance, visitor: Visitor, digits: Competition) -> None:
    with server.database.write() as session:
        competitions.get_split(session, digits, Visibility.PRIVATE).state = SplitState.FAILED.value
    assert "The private split of digits could not be prepared." in visitor.get("/organise").text


def test_dashboard_runs_the_same_queries_for_any_competitions(server, visitor, digits):
    counts = []
    for number in range(4):
        with counted_queries(server.database.engine) as queries:
            visitor.get("/organise")
        counts.append(len(queries))
        with server.database.write() as session:
            from server.accounts import accounts  # noqa: PLC0415

            competitions.create(session, competition_toml(f"c{number}"), organiser=accounts.find(session, "olga"))
    assert len(set(counts)) == 1


def test_organiser_pages_run_the_same_queries_for_any_number(server, visitor, digits):
    paths = [*(f"/organise/digits{page}" for page in PAGES), "/organise/digits/submissions?only=flagged&text=a"]
    counts: dict[str, set[int]] = {path: set() for path in paths}
    for number in range(3):
        for path, found in counts.items():
            with counted_queries(server.database.engine) as queries:
                assert visitor.get(path).status_code == 200
            found.add(len(queries))
        add_scored(server, digits, f"team-{number}")
        visitor.post("/organise/digits/announce", {"title": f"News {number}", "text": "x"}, page="/organise/digits")
    assert {path: len(found) for path, found in counts.items()} == dict.fromkeys(paths, 1)


def test_a_file_with_mistakes_names_each(visitor: Visitor, digits: Competition) -> None:
    text = competition_toml("second").replace("n_models = 4", "n_models = 1")
    answer = visitor.post("/organise/new", {"text": text, "act": "create"})
    assert answer.status_code == 422
    assert "n_models" in plain_text(answer.text)


@pytest.mark.parametrize("path", ["/organise/new", "/organise/second/edit"])
def test_toml_mistake_names_its_line_once(visitor: Visitor, digits: Competition, path: str) -> None:
    visitor.post("/organise/new", {"text": competition_toml("second"), "act": "create"})
    answer = visitor.post(path, {"text": 'slug = "third"\ntitle "x"\n', "act": "preview"})
    alert = plain_text(answer.text.split('role="alert"')[1].split("</div>")[0])
    assert alert.count("Expected '=' after a key") == 1
    assert alert.lower().count("line 2") == 1


def test_failure_names_its_line_once_to_organisers(server: Instance, visitor: Visitor, digits: Competition) -> None:
    submission = add_scored(server, digits)
    with server.database.write() as session:
        failed = session.get_one(Submission, submission.id)
        failed.stage, failed.fault, failed.error_class = "failed", "participant", "exception"
        failed.error = {"message": "It broke. See mine.py, line 4.", "file": "mine.py", "line": 4}
    page = visitor.get(f"/organise/digits/submissions/{submission.id}").text
    assert plain_text(page).count("mine.py, line 4") == 1


def test_a_preview_makes_nothing(server: Instance, visitor: Visitor, digits: Competition) -> None:
    answer = visitor.post("/organise/new", {"text": competition_toml("second"), "act": "preview"})
    assert "The file is valid." in answer.text
    assert visitor.get("/organise/second").status_code == 404


def test_an_end_that_is_past_is_refused(visitor: Visitor, digits: Competition) -> None:
    for days, warned in ((-1, True), (1, False)):
        opens_at, closes_at = now() - timedelta(days=2), now() + timedelta(days=days)
        text = competition_toml("second", opens_at=opens_at, closes_at=closes_at)
        answer = visitor.post("/organise/new", {"text": text, "act": "preview"})
        assert ("closes_at is past" in plain_text(answer.text)) is warned


def test_a_draft_is_made_and_leads_to_its_control(visitor: Visitor, digits: Competition) -> None:
    answer = visitor.post("/organise/new", {"text": competition_toml("second"), "act": "create"})
    assert answer.headers["location"] == "/organise/second"
    assert "Prepare the splits" in visitor.get("/organise/second").text


def test_closing_by_hand_needs_a_reason(server: Instance, visitor: Visitor, digits: Competition) -> None:
    answer = visitor.post("/organise/digits/move", {"act": "close"}, page="/organise/digits")
    assert answer.status_code == 422
    visitor.post("/organise/digits/move", {"act": "close", "reason": "enough"}, page="/organise/digits")
    assert "finals are re-scored" in visitor.get("/organise/digits").text
    assert ("competition.closed", "enough") in actions(server, digits)


def test_an_act_that_the_state_does_not_allow_is_explained(visitor: Visitor, digits: Competition) -> None:
    answer = visitor.post("/organise/digits/move", {"act": "reveal", "reason": "x"}, page="/organise/digits")
    assert answer.status_code == 409
    assert "digits is open; its results can be revealed after it has closed" in answer.text


def test_a_form_of_an_organiser_needs_its_token(server: Instance, visitor: Visitor, digits: Competition) -> None:
    answer = visitor.client.post("/organise/digits/move", data={"act": "close", "reason": "x"})
    assert answer.status_code == 403


def test_filters_narrow_the_list(server: Instance, visitor: Visitor, digits: Competition) -> None:
    add_scored(server, digits, "ada")
    with server.database.write() as session:
        add_submission(session, add_team(session, digits, "bob"), stage="failed")
    base = "/organise/digits/submissions"
    assert " ada " in plain_text(visitor.get(base).text)
    failed = plain_text(visitor.get(base, params={"stage": "failed"}).text)
    assert " bob " in failed
    assert " ada " not in failed
    assert " ada " in plain_text(visitor.get(base, params={"team": "AD"}).text)
    assert "No submission matches" in visitor.get(base, params={"only": "disqualified"}).text


def test_same_file_of_another_team_is_pointed_out(server: Instance, visitor: Visitor, digits: Competition) -> None:
    with server.database.write() as session:
        teams = {name: add_team(session, digits, name) for name in ("ada", "bob", "cyd")}
        rows = {name: add_submission(session, team) for name, team in teams.items()}
        again = add_submission(session, teams["ada"])
        for name, row in rows.items():
            row.content_sha256 = ("c" if name == "cyd" else "a") * 64
        again.content_sha256 = "d" * 64
        ids = {name: row.id for name, row in rows.items()} | {"again": again.id}
    base = "/organise/digits/submissions"
    assert sorted(re.findall(r"Also sent by (\w+)\.</span>", visitor.get(base).text)) == ["ada", "bob"]
    assert "The same file was sent by bob." in plain_text(visitor.get(f"{base}/{ids['ada']}").text)
    for other in ("cyd", "again"):
        assert "The same file" not in plain_text(visitor.get(f"{base}/{ids[other]}").text)


def test_chosen_submissions_are_disqualified_with_a_reason(server, visitor, digits):
    submission = add_scored(server, digits)
    fields = {"submission": submission.id, "act": "disqualify", "reason": "copied"}
    visitor.post("/organise/digits/act", fields, page="/organise/digits/submissions")
    page = plain_text(visitor.get("/organise/digits/submissions").text)
    assert "1 disqualified." in page
    assert ("submission.disqualified", "copied") in actions(server, digits)


def test_act_without_a_choice_says_so_and_changes_nothing(server, visitor, digits):
    add_scored(server, digits)
    before = actions(server, digits)
    answer = visitor.post(
        "/organise/digits/act?list=stage%3Dscored", {"act": "disqualify"}, page="/organise/digits/submissions"
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/organise/digits/submissions?stage=scored")
    assert "No submission was chosen: nothing is changed." in plain_text(visitor.get(answer.headers["location"]).text)
    assert actions(server, digits) == before


def test_every_team_is_on_one_of_the_pages(server: Instance, visitor: Visitor, digits: Competition) -> None:
    names = [f"team-{number:03}" for number in range(PAGE_SIZE + 3)]
    with server.database.write() as session:
        for name in reversed(names):
            add_team(session, digits, name)
    found, path = [], "/organise/digits/teams?q=team"
    for _ in range(2):
        text = visitor.get(path).text
        found.append(re.findall(r"submissions\?team=(team-\d+)", text))
        following = re.search(r'rel="next" href="([^"]+)"', text)
        path = "/organise/digits/teams" + unescape(following[1]) if following else ""
    assert found == [names[:PAGE_SIZE], names[PAGE_SIZE:]]
    assert path == ""


def test_what_an_act_does_not_fit_is_left_and_named(server: Instance, visitor: Visitor, digits: Competition) -> None:
    submission = add_scored(server, digits)
    fields = {"submission": submission.id, "act": "cancel", "reason": "why"}
    visitor.post("/organise/digits/act", fields, page="/organise/digits/submissions")
    assert f"0 cancelled. {submission.id}: The submission is scored" in plain_text(
        visitor.get("/organise/digits/submissions").text
    )


def test_a_submission_of_another_competition_cannot_be_reached(server, visitor, digits):
    other = add_scored(server, server.competition("other"), "eve")
    assert visitor.get(f"/organise/digits/submissions/{other.id}").status_code == 404
    fields = {"submission": other.id, "act": "disqualify", "reason": "x"}
    assert visitor.post("/organise/digits/act", fields, page="/organise/digits/submissions").status_code == 404


def test_a_team_is_disqualified_and_restored(server: Instance, visitor: Visitor, digits: Competition) -> None:
    submission = add_scored(server, digits)
    path = f"/organise/digits/teams/{submission.team_id}"
    visitor.post(path, {"act": "disqualify", "reason": "two accounts"}, page="/organise/digits/teams")
    assert "disqualified" in plain_text(visitor.get("/organise/digits/teams").text)
    visitor.post(path, {"act": "restore", "reason": "a mistake"}, page="/organise/digits/teams")
    found = actions(server, digits)
    assert ("team.disqualified", "two accounts") in found
    assert ("team.restored", "a mistake") in found


def test_the_end_is_moved(server: Instance, visitor: Visitor, digits: Competition) -> None:
    later = (now() + timedelta(days=5)).strftime("%Y-%m-%dT%H:%M")
    visitor.post("/organise/digits/extend", {"closes_at": later, "reason": "an outage"}, page="/organise/digits")
    with server.database.read() as session:
        assert competitions.of_id(session, digits.id).closes_at.strftime("%Y-%m-%dT%H:%M") == later


def test_an_announcement_stands_on_the_overview(visitor: Visitor, digits: Competition) -> None:
    fields = {"title": "News", "text": "The end is **near** <b>x</b>"}
    visitor.post("/organise/digits/announce", fields, page="/organise/digits")
    page = visitor.get("/competitions/digits").text
    assert "<strong>near</strong>" in page
    assert "<b>x</b>" not in page


def test_the_audit_log_is_filtered(server: Instance, visitor: Visitor, digits: Competition) -> None:
    visitor.post("/organise/digits/move", {"act": "close", "reason": "enough"}, page="/organise/digits")
    page = plain_text(visitor.get("/organise/digits/audit", params={"action": "competition.closed"}).text)
    assert "enough" in page
    assert "competition.created olga" not in page


@pytest.mark.parametrize("name", ["throughput", "failures"])
def test_the_dashboard_s_figures_are_specifications(visitor: Visitor, digits: Competition, name: str) -> None:
    spec = visitor.get(f"/organise/figures/{name}.json").json()
    assert spec["$schema"].startswith("https://vega.github.io/schema/vega-lite/")


def test_hours_without_a_run_have_an_axis_all_the_same(visitor: Visitor, digits: Competition) -> None:
    spec = visitor.get("/organise/figures/throughput.json").json()
    assert {row["runs"] for row in spec["data"]["values"]} == {0}
    assert spec["encoding"]["y"]["scale"]["domain"] == [0, 1]


def test_enter_presses_nothing_destructive_in_any_form() -> None:
    """Enter in a text field presses the first button of its form, so the first one is disabled."""
    found = 0
    for template in sorted(TEMPLATES.rglob("*.html")):
        for form in re.findall(r"<form\b.*?</form>", template.read_text(), flags=re.DOTALL):
            decides = "button-bad" in form or "/move" in form
            if decides and ('class="input"' in form or "{{ field(" in form):
                found += 1
                assert form.find("enter_does_nothing()") in range(form.find("<button")), template.name
    assert found >= 9
