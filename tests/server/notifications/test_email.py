"""E-mail: stored with the act, sent to a real mail server by its own task, retried, declined."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError
from sqlalchemy import select

from lethe.competition.visibility import Visibility
from server.config import Settings, get_settings
from server.db import now
from server.jobs.leases import EMAILS
from server.models.account import AuditEvent, Role
from server.models.competition import CompetitionState
from server.models.notification import QueuedEmail
from server.models.submission import Fault
from server.notifications import email_delivery, outbox
from server.notifications.outbox import queue_mail
from tests.support.instance import Instance
from tests.support.ports import free_port
from tests.support.smtp import MailServer, mail_server, make_certificate

BASE = "/api/v1/competitions/digits"
SENDER = "lethe@example.org"


@pytest.fixture
def post_office() -> Iterator[MailServer]:
    with mail_server() as running:
        yield running


def switch_on(monkeypatch: pytest.MonkeyPatch, port: int, **settings: str) -> None:
    given = {"host": "127.0.0.1", "port": str(port), "tls": "none", **settings}
    for name, value in given.items():
        monkeypatch.setenv(f"LETHE_SMTP_{name.upper()}", value)
    monkeypatch.setenv("LETHE_MAIL_FROM", SENDER)
    monkeypatch.setenv("LETHE_PUBLIC_URL", "https://lethe.example.org")
    get_settings.cache_clear()


@pytest.fixture
def mail_is_on(post_office: MailServer, monkeypatch: pytest.MonkeyPatch) -> MailServer:
    switch_on(monkeypatch, post_office.port)
    return post_office


def queue(server: Instance, *addresses: str, body: str = "Hello") -> None:
    with server.database.write() as session:
        for address in addresses:
            assert queue_mail(session, to=address, subject="A\r\nBcc: all@example.org", body=body)


def send(server: Instance, *, later: timedelta = timedelta()) -> int:
    return email_delivery.send(server.database, get_settings(), at=now() + later)


def states(server: Instance) -> list[tuple[str, int, str]]:
    with server.database.read() as session:
        return [
            (row.state, row.attempts, row.body)
            for row in session.scalars(select(QueuedEmail).order_by(QueuedEmail.address))
        ]


def test_mail_arrives_once_and_what_it_said_is_forgotten(both: Instance, mail_is_on: MailServer) -> None:
    queue(both, "ada@example.org", body="Grüße,\n.\nthe page_url: https://lethe.example.org/reset#secret")
    assert outbox.is_due(both.database, EMAILS, at=now())
    assert send(both) == 1
    assert send(both, later=timedelta(days=9)) == 0
    assert not outbox.is_due(both.database, EMAILS, at=now() + timedelta(days=9))
    [taken] = mail_is_on.taken
    assert (taken.sender, taken.receiver) == (SENDER, "ada@example.org")
    assert taken.message["Subject"] == "A Bcc: all@example.org", "a subject is one line, whatever is in it"
    text = taken.message.get_content().splitlines()
    assert text == ["Grüße,", ".", "the page_url: https://lethe.example.org/reset#secret"]
    assert states(both) == [("sent", 1, "")]


def test_many_mails_take_one_connection(server: Instance, mail_is_on: MailServer) -> None:
    queue(server, *(f"p{i}@example.org" for i in range(30)))
    assert send(server) == 30
    assert mail_is_on.connections == 1


def test_what_was_undone_is_not_mailed(server: Instance, mail_is_on: MailServer) -> None:
    def queue_and_undo() -> None:
        with server.database.write() as session:
            queue_mail(session, to="ada@example.org", subject="A", body="B")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        queue_and_undo()
    assert send(server) == 0
    assert mail_is_on.taken == []


def test_without_a_mail_server_nothing_is_stored(server: Instance) -> None:
    with server.database.write() as session:
        assert not queue_mail(session, to="ada@example.org", subject="A", body="B")
    assert states(server) == []


def test_absent_mail_server_is_tried_again_and_then_given_up(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    switch_on(monkeypatch, free_port())
    queue(server, "ada@example.org")
    later = timedelta()
    for attempt, wait in enumerate(outbox.RETRY_AFTER, start=1):
        assert send(server, later=later) == 0
        assert states(server)[0][:2] == ("waiting" if attempt < len(outbox.RETRY_AFTER) else "failed", attempt)
        assert send(server, later=later) == 0, "not before its time"
        assert states(server)[0][1] == attempt
        later += wait + timedelta(seconds=1)
    assert states(server) == [("failed", 6, "")]


@pytest.mark.parametrize(("answer", "state"), [("450 busy", "waiting"), ("550 no such person", "failed")])
def test_only_what_may_pass_is_tried_again(server: Instance, mail_is_on: MailServer, answer: str, state: str) -> None:
    mail_is_on.refused["ada@example.org"] = answer
    queue(server, "ada@example.org", "bob@example.org")
    assert send(server) == 1, "one that is refused is in nobody else's way"
    assert [row[0] for row in states(server)] == [state, "sent"]
    mail_is_on.refused.clear()
    assert send(server, later=timedelta(minutes=2)) == (state == "waiting")


def test_mail_is_sent_after_the_mail_server_hung_up(server: Instance, mail_is_on: MailServer) -> None:
    queue(server, "ada@example.org", "bob@example.org")
    mail_is_on.hangs_up = True
    assert send(server) == 0
    mail_is_on.hangs_up = False
    assert send(server, later=timedelta(minutes=2)) == 2


def test_password_goes_over_tls_only(server: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = make_certificate(tmp_path)
    with mail_server(certificate=certificate) as strict:
        strict.password = "a mail server's password"
        switch_on(monkeypatch, strict.port, tls="starttls", user="lethe", password=strict.password)
        queue(server, "ada@example.org")
        assert send(server) == 0, "nobody vouches for the certificate"
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert send(server, later=timedelta(minutes=2)) == 1
        assert [(mail.encrypted, mail.user) for mail in strict.taken] == [(True, "lethe")]


@pytest.mark.parametrize(
    "values",
    [
        {"smtp_host": "mail.example.org"},
        {"smtp_host": "mail.example.org", "mail_from": "Lethe"},
        {"smtp_host": "mail.example.org", "mail_from": SENDER, "smtp_user": "lethe"},
        {"smtp_host": "m.org", "mail_from": SENDER, "smtp_user": "a", "smtp_password": "b", "smtp_tls": "none"},
    ],
)
def test_half_a_mail_server_is_refused(values: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match=r"LETHE_(MAIL_FROM|SMTP_PASSWORD|SMTP_TLS)"):
        Settings(**values)  # type: ignore[arg-type]


def test_events_reach_those_whom_they_concern(server: Instance, mail_is_on: MailServer) -> None:
    organiser = server.confirmed_account("olga", Role.ORGANISER)
    server.competition(organiser=organiser)
    olga = server.headers(organiser)
    ada, bob = server.headers(server.confirmed_account("ada")), server.headers(server.confirmed_account("bob"))
    server.confirmed_account("eve")
    first, second = server.submit(ada).json()["id"], server.submit(ada).json()["id"]
    third = server.submit(bob).json()["id"]
    server.score(first, 0.123456)
    server.fail(second, Fault.PARTICIPANT)
    server.fail(third, Fault.HOST)
    news = server.client.post(f"{BASE}/announcements", headers=olga, json={"title": "Hello", "text": "to *all*"}).json()
    assert (news["people"], news["mails"]) == (3, 3), "the organiser and two teams, not who takes no part"
    server.client.post(f"{BASE}/close", headers=olga)
    send(server)

    def subjects(name: str) -> list[str]:
        return sorted(str(message["Subject"]) for message in mail_is_on.to(f"{name}@example.org"))

    title = "Forgetting digits"
    everybody = [f"{title} has closed", f"{title}: Hello"]
    assert subjects("ada") == sorted([*everybody, f"{title}: a score", f"{title}: a failure"])
    assert subjects("bob") == sorted([*everybody, f"{title}: a failure"])
    assert subjects("olga") == sorted([*everybody, f"{title}: platform failure"])
    assert subjects("eve") == [], "who takes no part hears nothing"
    texts = [mail.message.get_content() for mail in mail_is_on.taken]
    assert any(f"https://lethe.example.org/submissions/{first}" in text for text in texts)
    assert not any("0.123" in text or "it broke" in text for text in texts), "no figure and no cause is in a mail"


def test_reveal_is_told_and_no_figure_with_it(server: Instance, mail_is_on: MailServer) -> None:
    server.competition()
    ada = server.headers(server.confirmed_account("ada"))
    submission = server.submit(ada).json()["id"]
    server.score(submission, 0.5)
    olga = server.headers(server.account("root2", Role.ADMINISTRATOR))
    server.client.post(f"{BASE}/close", headers=olga)
    server.tick()
    server.score(submission, 0.987654, visibility=Visibility.PRIVATE)
    server.tick()
    assert server.client.post(f"{BASE}/reveal", headers=olga).json()["state"] == CompetitionState.FINAL
    send(server)
    assert "Forgetting digits: the final leaderboard" in [m["Subject"] for m in mail_is_on.to("ada@example.org")]
    assert not any("0.98" in mail.message.get_content() for mail in mail_is_on.taken)


def test_who_declines_gets_no_news_but_still_what_they_ask_for(server: Instance, mail_is_on: MailServer) -> None:
    organiser = server.account("olga", Role.ORGANISER)
    server.competition(organiser=organiser)
    ada, bob = server.headers(server.confirmed_account("ada")), server.headers(server.confirmed_account("bob"))
    for headers in (ada, bob):
        server.submit(headers)
    assert server.client.put("/api/v1/me/mail", headers=ada, json={"wanted": False}).json()["wants_mail"] is False
    news = {"title": "Hello", "text": "all"}
    told = server.client.post(f"{BASE}/announcements", headers=server.headers(organiser), json=news).json()
    assert (told["people"], told["mails"]) == (3, 1), "the organiser has no address"
    with server.database.write() as session:
        queue_mail(session, to="ada@example.org", subject="The page_url you asked for", body="…")
        event = session.scalars(select(AuditEvent).where(AuditEvent.action == "competition.announced")).one()
        assert (event.data["people"], event.data["mails"]) == (3, 1)
    send(server)
    assert [message["Subject"] for message in mail_is_on.to("ada@example.org")] == ["The page_url you asked for"]
    assert [message["Subject"] for message in mail_is_on.to("bob@example.org")] == ["Forgetting digits: Hello"]


def test_final_that_waits_for_a_decision_is_mailed_once(server: Instance, mail_is_on: MailServer) -> None:
    organiser = server.confirmed_account("olga", Role.ORGANISER)
    server.competition(organiser=organiser)
    olga = server.headers(organiser)
    ada = server.headers(server.confirmed_account("ada"))
    final = server.submit(ada).json()["id"]
    server.score(final, 0.5)
    server.client.post(f"{BASE}/close", headers=olga)
    server.tick()
    for attempt in range(4):
        server.fail(final, Fault.HOST, visibility=Visibility.PRIVATE)
        server.tick()
        server.tick()
        send(server)
        about = [mail for mail in mail_is_on.to("olga@example.org") if "a decision about a final" in mail["Subject"]]
        assert len(about) == (attempt == 3), "the host's own retries need nobody"
    assert not any("decision" in str(mail["Subject"]) for mail in mail_is_on.to("ada@example.org"))
    waits = server.client.get(f"{BASE}/preparation", headers=olga).json()
    assert [each["submission"] for each in waits["failed_finals"]] == [final]
    assert waits["waiting"] == {"unconfirmed_scores": 0, "requests_to_take_part": 0, "open_questions": 0}
    server.client.post(f"{BASE}/questions", headers=ada, json={"text": "Why?"})
    assert server.client.get(f"{BASE}/preparation", headers=olga).json()["waiting"]["open_questions"] == 1
