"""What a person sees when something is refused or fails: what, why, and where to go."""

import pytest

from server.models.account import Role
from tests.support.instance import Instance
from tests.support.web import Visitor, plain_text

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
