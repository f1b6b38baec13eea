"""Scores above exact retraining: shown without a rank until an organiser confirms them, on every board."""

from typing import Any

from sqlalchemy import select

from lethe.competition.visibility import Visibility
from server.competitions import competitions
from server.db import now
from server.leaderboard import boards
from server.leaderboard.boards import summary
from server.models.account import Account, AuditEvent, Role
from server.models.competition import Competition, CompetitionState
from server.models.evaluation import PrivateScore, PublicScore
from server.models.notification import Delivery
from server.models.submission import Submission
from server.scoring import scores
from server.web.organiser.checklist import checklist
from tests.support.instance import Instance
from tests.support.scores import BASE, add_team, scored
from tests.support.scores import finish_rejudged as finish
from tests.support.tasks import open_tasks, part_ids
from tests.support.web import Visitor, plain_text

WHY = "a good reason"
REASON = "It is above."
HELD = {"flags": {"disagreement": 0.31, "reasons": [REASON], "suspect": True, "held": True}}
FREE = {"flags": {"disagreement": 0.01, "reasons": [], "suspect": False, "held": False}}
LADDER = '[board]\nmode = "ladder"\nstep = 0.01'


def opened(server: Instance, **options: Any) -> tuple[dict[str, str], dict[str, str], str]:
    """Return an organiser's headers, eve's, and the id of an unconfirmed submission of eve's, above one of ada's."""
    olga = server.organised(**options)
    eve = server.participant("eve")
    ids = [server.submit(headers).json()["id"] for headers in (eve, server.participant("ada"))]
    for submission, value, details in zip(ids, (0.75, 0.5), (HELD, FREE), strict=True):
        server.score(submission, value, details=details)
    return olga, eve, ids[0]


def lines(server: Instance, slug: str = "digits") -> list[tuple[int | None, str, str]]:
    rows = server.client.get(f"/api/v1/competitions/{slug}/leaderboard").json()["rows"]
    return [(row["rank"], row["team"], row["kind"]) for row in rows if row["team_id"]]


UNCONFIRMED = [(None, "eve", "unconfirmed"), (1, "ada", "team")]
CONFIRMED = [(1, "eve", "team"), (2, "ada", "team")]


def test_unconfirmed_score_takes_no_rank_until_it_is_confirmed(both: Instance) -> None:
    olga, eve, submission = opened(both)
    lower = both.submit(eve, b"def unlearning(a, b, c, d):\n    return a\n").json()["id"]
    both.score(lower, 0.6, details=FREE)

    def listed() -> tuple[int, float | None]:
        with both.database.read() as session:
            shown = summary(session, session.scalars(select(Competition)).one())
            return shown.teams, shown.best

    assert (lines(both), listed()) == (UNCONFIRMED, (1, 0.5))
    assert both.act(eve, submission, "confirm").status_code == 403
    assert both.act(olga, submission, "confirm", split="private").status_code == 409
    confirmed = both.act(olga, submission, "confirm")
    assert (confirmed.status_code, confirmed.json()["score"]["is_unconfirmed"]) == (200, False)
    assert (lines(both), listed()) == (CONFIRMED, (2, 0.75))
    again = both.act(olga, submission, "confirm")
    assert (again.status_code, "no unconfirmed score on the public split" in again.json()["detail"]) == (409, True)
    with both.database.read() as session:
        event = session.scalars(select(AuditEvent).where(AuditEvent.action == "submission.confirmed")).one()
    assert (event.reason, event.data["split"]) == (WHY, "public")


def test_rejudged_score_is_judged_anew_and_told(server: Instance) -> None:
    olga, _, submission = opened(server)
    webhook(server, olga)
    server.act(olga, submission, "confirm")
    body = {"changed": "limits", "reason": WHY, "submissions": [submission]}
    made = server.client.post(f"{BASE}/rejudgings", headers=olga, json=body).json()["id"]
    finish(server, submission, 0.8, details=HELD)
    assert lines(server) == CONFIRMED
    assert told(server) == [], "nothing counts before it is applied"
    assert server.client.post(f"{BASE}/rejudgings/{made}/apply", headers=olga).status_code == 200
    assert lines(server) == UNCONFIRMED
    assert told(server) == [{"submission": submission, "split": "public"}]


def test_team_reads_that_a_score_is_unconfirmed_and_not_why(server: Instance) -> None:
    _, eve, submission = opened(server)
    shown = server.client.get(f"/api/v1/submissions/{submission}", headers=eve)
    assert shown.json()["score"]["is_unconfirmed"] is True
    browser = Visitor(server, "eve")
    pages = [browser.get(path).text for path in (f"/submissions/{submission}", "/competitions/digits/submissions")]
    assert "no rank until an organiser has confirmed it" in plain_text(pages[0])
    for text in (*pages, shown.text, browser.get("/competitions/digits/leaderboard").text):
        assert "unconfirmed" in text.lower()
        assert REASON not in text


def test_organiser_reads_the_reasons_and_confirms_on_the_page(server: Instance) -> None:
    *_, submission = opened(server)
    olga = Visitor(server, "olga")
    path = f"/organise/digits/submissions/{submission}"
    page = plain_text(olga.get(path).text)
    for words in (REASON, "Unconfirmed.", "31 % of the oracle, of honest entries at most 15 %", "Confirm the score"):
        assert words in page
    listed = olga.get("/organise/digits/submissions", params={"only": "unconfirmed"}).text
    assert listed.count('name="submission"') == 1
    olga.post("/organise/digits/act", {"submission": submission, "act": "confirm", "reason": WHY}, page=path)
    page = plain_text(olga.get(path).text)
    assert "Confirmed." in page
    assert "Confirm the score" not in page
    assert lines(server) == CONFIRMED
    audit = plain_text(olga.get("/organise/digits/audit").text)
    assert "confirmed the public score of" in audit


def webhook(server: Instance, olga: dict[str, str]) -> None:
    body = {"url": "https://example.org/hook", "events": ["submission.unconfirmed"]}
    assert server.client.post(f"{BASE}/webhooks", headers=olga, json=body).status_code == 201


def told(server: Instance) -> list[Any]:
    with server.database.read() as session:
        return [row.payload["data"] for row in session.scalars(select(Delivery).order_by(Delivery.created_at))]


def test_unconfirmed_scores_on_a_ladder(server: Instance) -> None:
    olga, eve, submission = opened(server, extra=LADDER)
    assert lines(server) == UNCONFIRMED
    lower = server.submit(eve, b"def unlearning(net, retain, forget, val):\n    return net\n").json()["id"]
    server.score(lower, 0.1, details=FREE)
    shown = server.shown(eve, lower)["score"]
    assert (shown["final_score"], shown["is_unconfirmed"]) == (0.75, True), "it is the value before it that is shown"
    server.act(olga, submission, "confirm")
    assert lines(server) == CONFIRMED


def test_unconfirmed_final_is_on_the_private_board_and_the_checklist(both: Instance) -> None:
    olga = both.account("olga", Role.ORGANISER)
    competition = both.competition(organiser=olga, state=CompetitionState.PROVISIONAL)
    with both.database.write() as session:
        private = competitions.get_split(session, competition, Visibility.PRIVATE)
        eve, ada = (add_team(session, competition, name) for name in ("eve", "ada"))
        submission = scored(session, eve, private, 0.9, is_unconfirmed=True).id
        scored(session, ada, private, 0.5)
        session.get_one(Competition, competition.id).frozen_at = now()

    def seen() -> tuple[list[tuple[int | None, str]], list[str]]:
        with both.database.read() as session:
            again = session.get_one(Competition, competition.id)
            board = boards.whole_board(session, again, Visibility.PRIVATE)
            checks = [check.text for check in checklist(session, again).checks if not check.ok]
            return [(row.rank, row.entry.team) for row in board.rows if row.entry.team_id], checks

    assert seen() == ([(None, "eve"), (1, "ada")], ["1 private score is unconfirmed"])
    headers = both.headers(olga)
    assert both.client.get(f"{BASE}/rescoring", headers=headers).json()["unconfirmed"] == 1
    assert both.act(headers, submission, "confirm", split="private").status_code == 200
    assert seen() == ([(1, "eve"), (2, "ada")], [])
    with both.database.read() as session:
        assert session.scalars(select(PrivateScore.is_unconfirmed)).all() == [False, False]


def test_part_that_is_unconfirmed_takes_the_teams_combined_rank(server: Instance, olga: Account) -> None:
    open_tasks(server, olga)
    path = "/api/v1/competitions/three"
    sent = {}
    for name, value, details in (("eve", 0.3, HELD), ("ada", 0.1, FREE)):
        headers = server.participant(name)
        file = {"file": ("submission.py", b"def unlearning(a, b, c, d):\n    return a\n")}
        sent[name] = server.client.post(f"{path}/submissions", headers=headers, files=file).json()["id"]
        own = part_ids(server, sent[name])
        server.score(own.pop("faces"), value, details=details)
        for part in own.values():
            server.score(part, value, details=FREE)

    assert lines(server, "three") == UNCONFIRMED
    headers = server.headers(olga)
    body = {"act": "confirm", "reason": WHY}
    whole = server.client.post(f"{path}/submissions/{sent['eve']}/acts", headers=headers, json=body)
    assert (whole.status_code, "confirm the score of a part" in whole.json()["detail"]) == (409, True)
    part = part_ids(server, sent["eve"])["faces"]
    assert server.client.post(f"{path}/submissions/{part}/acts", headers=headers, json=body).status_code == 200
    assert lines(server, "three") == CONFIRMED


def test_everything_that_organisers_read_says_unconfirmed(server: Instance) -> None:
    olga, _, submission = opened(server)
    found = server.client.get(f"{BASE}/submissions/{submission}/analysis", headers=olga).json()
    assert found["score"]["is_unconfirmed"] is True
    doubt = {"disagreement": 0.31, "honest_disagreement": 0.15, "reasons": [REASON], "is_suspect": True}
    assert found["doubt"] == doubt
    assert '"eve","unconfirmed"' in server.client.get(f"{BASE}/exports/public-leaderboard", headers=olga).text
    evaluations = server.client.get(f"{BASE}/exports/evaluations", headers=olga).text.splitlines()
    column = evaluations[0].split(",").index('"public_is_unconfirmed"')
    assert sorted(line.split(",")[column] for line in evaluations[1:]) == ["False", "True"]
    with server.database.read() as session:
        steps = checklist(session, session.scalars(select(Competition)).one())
        team = session.get_one(Submission, submission).team_id
    assert ("close", "1 public score is unconfirmed") in [(steps.act, check.text) for check in steps.checks]
    assert "unconfirmed" in plain_text(server.client.get(f"/competitions/digits/teams/{team}").text)


def test_rerun_of_a_confirmed_score_is_judged_anew_and_told(server: Instance) -> None:
    olga, _, submission = opened(server)
    webhook(server, olga)
    server.act(olga, submission, "confirm")
    server.act(olga, submission, "run-again")
    server.score(submission, 0.75, details=HELD)
    assert lines(server) == UNCONFIRMED
    assert told(server) == [{"submission": submission, "split": "public"}]
    server.act(olga, submission, "run-again")
    server.act(olga, submission, "cancel")
    assert lines(server) == UNCONFIRMED, "the one before it counts again, as it was"
    server.act(olga, submission, "run-again")
    server.score(submission, 0.4, details=FREE)
    assert len(told(server)) == 1


def test_baselines_are_not_confirmed_and_nobody_is_tied_with_what_is_not(server: Instance) -> None:
    *_, submission = opened(server)
    with server.database.write() as session:
        score = session.scalars(select(PublicScore).where(PublicScore.submission_id == submission)).one()
        assert score.is_unconfirmed
        competition = session.scalars(select(Competition)).one()
        public = competitions.get_split(session, competition, Visibility.PUBLIC)
        host = add_team(session, competition, "host", is_baseline=True)
        scored(session, host, public, 0.9, is_unconfirmed=True)
        for row in session.scalars(select(PublicScore)):
            row.replicates = {"headline": [0.5], "seed": 0, "n_models": 4, "factor": 1.0}
        session.flush()
        assert len(scores.of_split(session, public.id)) == 1
    assert lines(server)[0] == (None, "host", "baseline")
