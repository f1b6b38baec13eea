"""The audit log in sentences."""

import re
from pathlib import Path

import server
from server import audit
from server.accounts import accounts
from server.admin import moderation
from server.models.competition import Competition
from server.web.organiser.audit_sentences import SENTENCES
from tests.support.instance import Instance
from tests.support.scores import add_submission, add_team
from tests.support.web import Visitor, plain_text

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


def test_an_act_reads_as_a_sentence_with_its_reason_and_a_link(server, visitor, digits):
    with server.database.write() as session:
        olga = accounts.find(session, "olga")
        team = add_team(session, digits, "ada")
        submission = add_submission(session, team)
        moderation.disqualify(session, submission, actor=olga, reason="a copy")
        address = f"/organise/digits/submissions/{submission.id}"
    page = visitor.get(LOG).text
    assert f'disqualified <a href="{address}">submission {submission.id[:8]}</a>' in page
    assert "a copy" in plain_text(page)
    assert visitor.get(address).status_code == 200


def test_data_that_a_sentence_does_not_say_stands_below_it(server, visitor, digits):
    with server.database.write() as session:
        team = add_team(session, digits, "ada")
        audit.record(session, None, "team.renamed", competition=digits, subject=team.id, data={"from": "a", "to": "b"})
        limits = {"team_size": {"from": 3, "to": None}, "sha256": "0123456789abcdef" * 4}
        audit.record(session, None, "competition.limits_changed", competition=digits, subject="digits", data=limits)
        audit.record(session, None, "competition.unheard_of", competition=digits, subject="digits")
    page = plain_text(visitor.get(LOG).text)
    assert "The server renamed the team ada from a to b." in page
    assert "The server changed the limits of the competition ." in page
    assert "team size: 3 → none" in page
    assert "sha256: 0123456789ab…" in page
    assert "0123456789abc" not in page
    assert "did “competition.unheard_of” to the competition" in page


def test_names_in_sentences_are_escaped(server: Instance, visitor: Visitor, digits: Competition) -> None:
    with server.database.write() as session:
        data = {"from": "<img src=x>", "to": "b"}
        audit.record(session, None, "team.renamed", competition=digits, subject="none", data=data)
    page = visitor.get(LOG).text
    assert "renamed" in page
    assert "<img src=x>" not in page
    assert "&lt;img" in page
