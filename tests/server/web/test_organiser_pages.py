"""The organisers' pages: who may enter, what is shown, what each act does, and the audit log in sentences."""

import re
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any

import server
from lethe.competition.visibility import Visibility
from server import audit
from server.competitions import competitions
from server.db import now
from server.leaderboard import boards
from server.models.account import Role
from server.models.competition import Competition, SplitState
from server.models.evaluation import Evaluation, Shard
from server.models.submission import Submission
from server.teams.teams import PAGE_SIZE
from server.web.organiser.audit_sentences import SENTENCES
from tests.support.instance import Instance, competition_toml
from tests.support.scores import actions, add_scored, add_submission, add_team
from tests.support.web import Visitor, counted_queries, plain_text

TEMPLATES = Path(competitions.__file__).parents[1] / "templates"
PAGES = ("", "/submissions", "/teams", "/rejudgings", "/limits", "/words", "/exports", "/splits/public", "/audit")


def test_the_dashboard_is_healthy_until_something_waits_or_fails(server, visitor, digits):
    server.competition("others")
    page = plain_text(visitor.get("/organise").text)
    assert "Everything is healthy." in page
    assert "Nothing waits." in page
    assert "Forgetting others" not in page
    with server.database.write() as session:
        competitions.get_split(session, digits, Visibility.PRIVATE).state = SplitState.FAILED.value
        public = competitions.get_split(session, digits, Visibility.PUBLIC)
        submission = add_submission(session, add_team(session, digits, "ada"), stage="running")
        evaluation = Evaluation(submission_id=submission.id, split_id=public.id, scorer_version="1", n_runs=4)
        session.add(evaluation)
        session.flush()
        ids = {"evaluation_id": evaluation.id, "split_id": public.id, "competition_id": digits.id}
        queued_at = now() - timedelta(hours=1)
        session.add(Shard(**ids, team_id=submission.team_id, first_run=0, n_runs=4, queued_at=queued_at))
    page = plain_text(visitor.get("/organise").text)
    for words in ("no worker has been heard of", "The oldest run in the queue came", "1 hour ago"):
        assert words in page
    assert "The private split of digits could not be prepared." in page
    for name in ("throughput", "failures"):
        spec = visitor.get(f"/organise/figures/{name}.json").json()
        assert spec["$schema"].startswith("https://vega.github.io/schema/vega-lite/")
        if name == "throughput":
            assert {row["runs"] for row in spec["data"]["values"]} == {0}
            assert spec["encoding"]["y"]["scale"]["domain"] == [0, 1], "an axis all the same"


def test_pages_run_the_same_queries_for_any_number(server, visitor, olga, digits):
    server.account("adam", Role.ADMINISTRATOR)
    visitor.log_in("adam")
    paths = [*(f"/organise/digits{page}" for page in PAGES), "/organise/digits/submissions?only=flagged&text=a"]
    paths += ["/", "/organise", "/people", "/competitions/digits/leaderboard"]
    counts: dict[str, set[int]] = {path: set() for path in paths}
    for number in range(3):
        add_scored(server, digits, f"team-{number}")
        server.competition(f"c{number}", organiser=olga)
        visitor.post("/organise/digits/announce", {"title": f"News {number}", "text": "x"}, page="/organise/digits")
        for path, found in counts.items():
            boards._kept.clear()
            with counted_queries(server.database.engine) as queries:
                assert visitor.get(path).status_code == 200
            found.add(len(queries))
    assert {path: len(found) for path, found in counts.items()} == dict.fromkeys(paths, 1)


def test_a_file_is_previewed_and_made_a_draft(visitor: Visitor, digits: Competition) -> None:
    def sent(text: str, *, act: str = "preview", path: str = "/organise/new") -> Any:
        return visitor.post(path, {"text": text, "act": act})

    text = competition_toml("second")
    wrong = sent(text.replace("n_models = 4", "n_models = 1"), act="create")
    assert (wrong.status_code, "n_models" in plain_text(wrong.text)) == (422, True)
    for days in (-1, 1):
        dates = {"opens_at": now() - timedelta(days=2), "closes_at": now() + timedelta(days=days)}
        found = plain_text(sent(competition_toml("second", **dates)).text)
        assert ("closes_at is past" in found, "The file is valid." in found) == (days < 0, days > 0)
    assert visitor.get("/organise/second").status_code == 404, "a preview makes nothing"
    assert sent(text, act="create").headers["location"] == "/organise/second"
    assert "Prepare the splits" in visitor.get("/organise/second").text
    for path in ("/organise/new", "/organise/second/edit"):
        answer = sent('slug = "third"\ntitle "x"\n', path=path)
        alert = plain_text(answer.text.split('role="alert"')[1].split("</div>")[0])
        assert alert.count("Expected '=' after a key") == 1
        assert alert.lower().count("line 2") == 1


def test_a_competition_is_announced_extended_and_closed_with_a_reason(server, visitor, digits):
    control = "/organise/digits"
    fields = {"title": "News", "text": "The end is **near** <b>x</b>"}
    visitor.post(f"{control}/announce", fields, page=control)
    page = visitor.get("/competitions/digits").text
    assert ("<strong>near</strong>" in page, "<b>x</b>" in page) == (True, False)
    later = (now() + timedelta(days=5)).strftime("%Y-%m-%dT%H:%M")
    visitor.post(f"{control}/extend", {"closes_at": later, "reason": "an outage"}, page=control)
    with server.database.read() as session:
        assert competitions.of_id(session, digits.id).closes_at.strftime("%Y-%m-%dT%H:%M") == later
    early = visitor.post(f"{control}/move", {"act": "reveal", "reason": "x"}, page=control)
    assert early.status_code == 409
    assert "digits is open; its results can be revealed after it has closed" in early.text
    assert visitor.client.post(f"{control}/move", data={"act": "close", "reason": "x"}).status_code == 403, "no token"
    assert visitor.post(f"{control}/move", {"act": "close"}, page=control).status_code == 422
    visitor.post(f"{control}/move", {"act": "close", "reason": "enough"}, page=control)
    assert "finals are re-scored" in visitor.get(control).text
    assert ("competition.closed", "enough") in actions(server, digits)
    page = plain_text(visitor.get(LOG, params={"action": "competition.closed"}).text)
    assert ("enough" in page, "competition.created olga" in page) == (True, False)


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


def test_chosen_submissions_and_teams_are_disqualified_with_a_reason(server, visitor, digits):
    base = "/organise/digits/submissions"

    def act(name: str, *chosen: str, query: str = "", reason: str = "copied") -> tuple[Any, str]:
        fields = {"act": name, "reason": reason} | ({"submission": chosen[0]} if chosen else {})
        answer = visitor.post(f"/organise/digits/act{query}", fields, page=base)
        return answer, plain_text(visitor.get(base).text)

    submission, other = add_scored(server, digits), add_scored(server, server.competition("other"), "eve")
    before = actions(server, digits)
    answer, page = act("disqualify", query="?list=stage%3Dscored")
    assert (answer.status_code, answer.headers["location"]) == (303, f"{base}?stage=scored")
    assert "No submission was chosen: nothing is changed." in page
    assert act("disqualify", other.id)[0].status_code == 404
    assert visitor.get(f"{base}/{other.id}").status_code == 404
    assert f"0 cancelled. {submission.id}: The submission is scored" in act("cancel", submission.id)[1]
    assert actions(server, digits) == before
    assert "1 disqualified." in act("disqualify", submission.id)[1]
    address = f"{base}/{submission.id}"
    log = visitor.get(LOG).text
    assert f'disqualified <a href="{address}">submission {submission.id[:8]}</a>' in log
    assert "copied" in plain_text(log)
    path = f"/organise/digits/teams/{submission.team_id}"
    for verb, reason in (("disqualify", "two accounts"), ("restore", "a mistake")):
        visitor.post(path, {"act": verb, "reason": reason}, page="/organise/digits/teams")
        assert ("disqualified" in plain_text(visitor.get("/organise/digits/teams").text)) is (verb == "disqualify")
    assert {("team.disqualified", "two accounts"), ("team.restored", "a mistake")} <= set(actions(server, digits))
    with server.database.write() as session:
        failed = session.get_one(Submission, submission.id)
        failed.stage, failed.fault, failed.error_class = "failed", "participant", "exception"
        failed.error = {"message": "It broke. See mine.py, line 4.", "file": "mine.py", "line": 4}
    assert plain_text(visitor.get(address).text).count("mine.py, line 4") == 1


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


CODE = Path(server.__file__).parent
KINDS = "admission_link|competition|final|participant|question|rejudging|split|submission|team|webhook|worker_token"
ACTION = re.compile(rf'"((?:{KINDS})\.[a-z_]+)"')
EVENTS_ONLY = {"submission.scored", "submission.failed", "submission.html", "submission.py", "team.html"}  # no acts
EVENTS_ONLY |= {"submission.unconfirmed", "final.failed", "competition.html", "rejudging.html", "split.html"}
LOG = "/organise/digits/audit"


def test_every_action_of_a_competition_has_a_sentence() -> None:
    sources = [path for path in CODE.rglob("*.py") if path.name != "audit_sentences.py"]
    recorded = {action for path in sources for action in ACTION.findall(path.read_text())} - EVENTS_ONLY
    assert len(recorded) > 30
    assert recorded - set(SENTENCES) == set()
    assert set(SENTENCES) - recorded == set()


def test_data_that_a_sentence_does_not_say_stands_below_it(server, visitor, digits):
    with server.database.write() as session:
        team = add_team(session, digits, "ada")
        audit.record(
            session, None, "team.renamed", competition=digits, subject=team.id, data={"from": "<i>", "to": "b"}
        )
        limits = {"team_size": {"from": 3, "to": None}, "sha256": "0123456789abcdef" * 4}
        audit.record(session, None, "competition.limits_changed", competition=digits, subject="digits", data=limits)
        audit.record(session, None, "competition.unheard_of", competition=digits, subject="digits")
    html = visitor.get(LOG).text
    assert "<i>" not in html
    page = plain_text(html)
    assert "The server renamed the team ada from <i> to b." in page
    assert "The server changed the limits of the competition ." in page
    assert "team size: 3 → none" in page
    assert "sha256: 0123456789ab…" in page
    assert "0123456789abc" not in page
    assert "did “competition.unheard_of” to the competition" in page
