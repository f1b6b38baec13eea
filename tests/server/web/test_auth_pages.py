"""Log in, register, log out, and what a refusal says."""

import html

import pytest

from server.db import now
from server.models.account import Role, WebSession
from server.web.cookies import SESSION_COOKIE
from tests.support.instance import PASSWORD, Instance
from tests.support.web import Visitor, plain_text


def test_a_registered_person_is_logged_in_and_greeted_by_name(server: Instance, visitor: Visitor) -> None:
    answer = visitor.post("/register", {"name": "ada", "password": PASSWORD, "email": "ada@example.org"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    home = plain_text(visitor.get("/").text)
    assert "Welcome, ada." in home
    assert "Log out" in home


def test_a_message_is_shown_once(visitor: Visitor) -> None:
    visitor.post("/register", {"name": "ada", "password": PASSWORD})
    visitor.get("/")
    assert "Welcome" not in visitor.get("/").text


def test_a_wrong_password_says_no_more_than_a_wrong_name(server: Instance, visitor: Visitor) -> None:
    server.account("ada")
    wrong_password = visitor.log_in("ada", "something else")
    wrong_name = visitor.log_in("eve", "something else")
    assert wrong_password.status_code == wrong_name.status_code == 422
    assert "No account has this name and password" in wrong_password.text
    assert "No account has this name and password" in wrong_name.text


def test_the_password_is_never_sent_back(server: Instance, visitor: Visitor) -> None:
    answer = visitor.post("/register", {"name": "x", "password": "a-secret-nobody-sees"})
    assert answer.status_code == 422
    assert "a-secret-nobody-sees" not in answer.text


def test_a_wrong_value_is_named_beside_its_field(visitor: Visitor) -> None:
    answer = visitor.post("/register", {"name": "ada", "password": "short"})
    assert 'aria-describedby="password-hint password-error"' in answer.text
    assert "needs 10 to 200 characters" in answer.text
    assert 'value="ada"' in answer.text


def test_too_many_wrong_passwords_are_slowed_down(server: Instance, visitor: Visitor) -> None:
    server.account("ada")
    answers = [visitor.log_in("ada", "wrong password").status_code for _ in range(11)]
    assert answers[:10] == [422] * 10
    assert answers[10] == 429


def test_a_page_that_needs_a_log_in_leads_there_and_back(server: Instance, visitor: Visitor) -> None:
    server.account("ada")
    server.competition()
    to_login = visitor.get("/competitions/digits/submit")
    assert to_login.headers["location"] == "/login?next=%2Fcompetitions%2Fdigits%2Fsubmit&why=needed"
    back = visitor.post("/login", {"name": "ada", "password": PASSWORD, "next": "/competitions/digits/submit"})
    assert back.headers["location"] == "/competitions/digits/submit"


def test_logging_out_ends_the_session_on_the_server(server: Instance, visitor: Visitor) -> None:
    server.account("ada")
    visitor.log_in("ada")
    cookie = visitor.client.cookies[SESSION_COOKIE]
    visitor.post("/logout", page="/")
    visitor.client.cookies.set(SESSION_COOKIE, cookie)
    assert "Log in" in plain_text(visitor.get("/").text)


def test_a_closed_registration_is_refused(server: Instance, visitor: Visitor, monkeypatch: object) -> None:
    from server.config import get_settings  # noqa: PLC0415

    monkeypatch.setenv("LETHE_OPEN_REGISTRATION", "false")  # type: ignore[attr-defined]
    get_settings.cache_clear()
    assert "Registration is closed" in visitor.get("/register").text
    assert visitor.post("/register", {"name": "ada", "password": PASSWORD}, page="/login").status_code == 403


def test_stale_form_can_be_sent_again(server: Instance) -> None:
    server.competition(organiser=server.account("olga", Role.ORGANISER))
    visitor = Visitor(server)
    visitor.log_in("olga")
    old = visitor.token("/organise/new")
    visitor.post("/logout", page="/")
    visitor.log_in("olga")
    text = 'slug = "</textarea><b>typed"'
    sent = {"csrf_token": old, "text": text, "act": "preview"}
    refused = visitor.client.post("/organise/new", data=sent, headers={"Origin": "http://localhost"})
    assert refused.status_code == 403
    assert "Send it again" in refused.text
    assert html.escape(text, quote=True).replace("&quot;", "&#34;") in refused.text
    silent = visitor.client.post("/organise/new", data=sent)
    assert "Send it again" not in silent.text, "who sent it is not certain"


def test_passwords_are_not_offered_to_be_sent_again(server: Instance) -> None:
    visitor = Visitor(server)
    sent = {"csrf_token": "0" * 80, "name": "ada", "password": "a secret of mine"}
    refused = visitor.client.post("/login", data=sent, headers={"Origin": "http://localhost"})
    assert refused.status_code == 403
    assert "a secret" not in refused.text
    assert "Send it again" not in refused.text


def test_ended_session_says_why_and_leads_back_to_the_form(server: Instance) -> None:
    server.competition()
    server.account("ada")
    visitor = Visitor(server)
    visitor.log_in("ada")
    token = visitor.token("/competitions/digits/submit")
    with server.database.write() as session:
        session.query(WebSession).update({"revoked_at": now()})
    sent = visitor.client.post(
        "/competitions/digits/submit",
        data={"csrf_token": token, "code": "x = 1"},
        files={"file": ("", b"")},
        headers={"Referer": "http://localhost/competitions/digits/submit"},
        follow_redirects=False,
    )
    assert sent.headers["location"] == "/login?next=%2Fcompetitions%2Fdigits%2Fsubmit&why=ended"
    assert "Your session has ended" in visitor.get(sent.headers["location"]).text
    away = visitor.get("/account").headers["location"]
    assert "why=" in away


def test_stale_submission_keeps_the_pasted_code(server: Instance) -> None:
    server.competition()
    server.account("ada")
    visitor = Visitor(server)
    visitor.log_in("ada")
    old = visitor.token("/competitions/digits/submit")
    visitor.post("/logout", page="/")
    visitor.log_in("ada")
    sent = {"csrf_token": old, "code": "kept = 'this'", "message": "second try"}
    refused = visitor.client.post("/competitions/digits/submit", data=sent, files={"file": ("", b"")})
    assert refused.status_code == 403
    assert "The form has expired" in refused.text
    assert "kept = &#39;this&#39;" in refused.text
    assert "second try" in refused.text


HTML = {"Accept": "text/html"}


def test_server_failure_names_only_the_request(server, visitor, monkeypatch):
    def explode(*_args: object, **_values: object) -> None:
        raise RuntimeError("the secret cause")

    monkeypatch.setattr("server.competitions.competitions.list_visible", explode)
    answer = visitor.get("/", headers=HTML)
    assert answer.status_code == 500
    assert f"request {answer.headers['X-Request-ID']}" in plain_text(answer.text)
    assert "secret" not in answer.text
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")


def test_a_refused_form_leads_back_to_its_page(server: Instance, visitor: Visitor) -> None:
    server.competition(organiser=server.account("olga", Role.ORGANISER))
    visitor.log_in("olga")
    came_from = "/organise/digits/submissions?stage=failed"
    fields = {"act": "explode", "submission": "none", "reason": ""}
    answer = visitor.post(
        "/organise/digits/act", fields, page="/organise/digits", headers={"Referer": f"http://localhost{came_from}"}
    )
    assert answer.status_code == 422
    assert f'href="{came_from}"' in answer.text


@pytest.mark.parametrize(
    "referer", ["https://elsewhere.example/", "http://localhost//elsewhere.example", "", "nonsense"]
)
def test_no_error_page_leads_elsewhere(server: Instance, visitor: Visitor, referer: str) -> None:
    answer = visitor.get("/nowhere", headers={**HTML, "Referer": referer})
    assert answer.status_code == 404
    assert "Nothing has the address /nowhere" in plain_text(answer.text)
    assert "Back" not in plain_text(answer.text)
    assert "request" not in plain_text(answer.text)
