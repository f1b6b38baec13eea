"""The HTTP API's description as a page."""

import re

import pytest

from server.main import create_app
from server.web.help_pages import first_sentence, sections
from tests.support.instance import Instance
from tests.support.web import Visitor, plain_text


def test_every_operation_is_described_once(server: Instance, visitor: Visitor) -> None:
    document = server.client.get("/api/v1/openapi.json").json()
    keys = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    page = visitor.get("/api/docs").text
    assert len(keys) > 80
    assert [key for key in keys if page.count(f'id="{key}"') != 1] == []


def test_no_schema_is_named_after_a_module() -> None:
    schemas = create_app().openapi()["components"]["schemas"]
    assert [name for name in schemas if "__" in name] == []  # two classes of one name


def test_an_operation_tells_what_it_takes_answers_and_refuses() -> None:
    found = {
        operation.key: operation
        for _, _, part in sections(create_app().openapi(), url="https://x/")
        for operation in part
    }
    board = next(operation for operation in found.values() if operation.path.endswith("/leaderboard"))
    fields = {field.name: field for field in board.fields}
    assert fields["slug"].place == "path"
    assert fields["slug"].required
    assert fields["q"].text == "part of a team's name"
    assert board.returns == "LeaderboardPage"
    assert {field.name: field.what for field in board.returned}["rows"] == "list of LeaderboardRow"
    assert any(problem.startswith("404") for problem in board.problems)
    assert board.example == 'curl -H "Authorization: Bearer $TOKEN" "https://x/api/v1/competitions/{slug}/leaderboard"'
    log_in = next(each for each in found.values() if (each.method, each.path) == ("POST", "/api/v1/tokens"))
    assert """-d '{"name": <text>, "password": <text>}'""" in log_in.example


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Show a board. And more.", "Show a board"),
        ("Send it: a `.py` file or a\nnotebook.", "Send it"),
        ("Stop it", "Stop it"),
        ("Keep 0.5 of it. Then stop.", "Keep 0.5 of it"),
    ],
)
def test_a_title_is_the_first_sentence(text: str, title: str) -> None:
    assert first_sentence(text) == title


def test_the_page_stands_inside_the_layout_and_names_nobody_elses_address(server: Instance, visitor: Visitor) -> None:
    page = visitor.get("/api/docs", headers={"Host": "evil.example"}).text
    assert 'class="topbar"' in page
    assert "evil.example" not in page
    assert "$LETHE_URL/api/v1/accounts" in plain_text(page)
    assert not re.search(r"<script[^>]*swagger", page)
