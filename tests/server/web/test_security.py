"""What protects a person's browser: headers, form tokens, cookies, where a log-in leads."""

import pytest

from server.middleware import CONTENT_SECURITY_POLICY
from server.web.cookies import CSRF_COOKIE, SESSION_COOKIE
from server.web.rendering import local_path
from tests.support.instance import PASSWORD, Instance
from tests.support.web import Visitor


@pytest.mark.parametrize("path", ["/", "/login", "/nowhere", "/healthz", "/api/v1/competitions"])
def test_every_answer_carries_the_security_headers(server: Instance, path: str) -> None:
    headers = server.client.get(path).headers
    assert headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"


def test_the_policy_allows_nothing_inline_and_no_eval() -> None:
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert "default-src 'none'" in CONTENT_SECURITY_POLICY


def test_a_form_without_a_token_is_refused(server: Instance, visitor: Visitor) -> None:
    server.account("ada")
    visitor.get("/login")
    answer = visitor.client.post("/login", data={"name": "ada", "password": PASSWORD}, follow_redirects=False)
    assert answer.status_code == 403
    assert SESSION_COOKIE not in answer.cookies


def test_a_token_of_another_browser_is_refused(server: Instance, visitor: Visitor) -> None:
    server.account("ada")
    token = visitor.token()
    visitor.client.cookies.clear()
    visitor.get("/login")
    fields = {"csrf_token": token, "name": "ada", "password": PASSWORD}
    assert visitor.client.post("/login", data=fields).status_code == 403


def test_a_token_from_before_the_log_in_is_refused_after_it(server: Instance, visitor: Visitor) -> None:
    server.account("ada")
    token = visitor.token()
    visitor.log_in("ada")
    assert visitor.client.post("/logout", data={"csrf_token": token}).status_code == 403


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}]
)
def test_a_form_sent_from_another_site_is_refused(server: Instance, visitor: Visitor, headers: dict[str, str]) -> None:
    server.account("ada")
    answer = visitor.post("/login", {"name": "ada", "password": PASSWORD}, headers=headers)
    assert answer.status_code == 403


def test_tokens_differ_from_page_to_page(visitor: Visitor) -> None:
    assert visitor.token() != visitor.token()


def test_cookies_are_closed_to_scripts_and_to_other_sites(server: Instance, visitor: Visitor) -> None:
    server.account("ada")
    seed = visitor.get("/login").headers["set-cookie"]
    session = visitor.log_in("ada").headers["set-cookie"]
    assert CSRF_COOKIE in seed
    assert SESSION_COOKIE in session
    for cookie in (seed, session):
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie


@pytest.mark.parametrize(
    "target", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)", "", None, "/a\nb"]
)
def test_a_log_in_leads_only_to_this_server(target: str | None) -> None:
    assert local_path(target) == "/"


def test_a_log_in_leads_back_to_the_page_that_asked_for_it() -> None:
    assert local_path("/competitions/digits/submit?x=1") == "/competitions/digits/submit?x=1"
