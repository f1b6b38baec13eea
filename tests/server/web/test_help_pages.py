"""The documentation inside the site: help for participants with its search and glossary, and the HTTP API."""

import re

from server.main import create_app
from server.web import help_texts
from server.web.help_pages import first_sentence, sections
from tests.support.instance import Instance
from tests.support.web import Visitor, plain_text


def test_every_page_is_served_and_its_links_lead_somewhere(visitor: Visitor) -> None:
    pages = {name: visitor.get(f"/help/{name}").text for name in help_texts.help_pages()}
    assert {"submissions", "commands", "glossary"} <= set(pages)
    index = visitor.get("/help").text
    for name, page in pages.items():
        assert f'href="/help/{name}"' in index
        for target, anchor in re.findall(r'href="/help/([\w-]+)(?:#([\w-]+))?"', page):
            assert target in pages, (name, target)
            assert not anchor or f'id="{anchor}"' in pages[target], (name, target, anchor)
        assert not re.search(r'href="[^"]*\.md', page), "the site has no such address"


def test_search_finds_sections_by_all_words(visitor: Visitor) -> None:
    page = visitor.get("/help?q=Reset-Password").text
    assert re.search(r"[1-9]\d* sections? with “Reset-Password”", plain_text(page))
    assert "<mark>reset-password</mark>" in page
    assert 'href="/help/accounts' in page
    nothing = visitor.get("/help?q=no%3Cb%3E+such").text
    assert "No section holds these words" in plain_text(nothing)
    assert "<b>" not in nothing
    asked = {"why is my score low": "low-score", "your first score": "first-score", "crossfit": "scoring"}
    for query, name in (asked | {"klom": "metrics"}).items():
        assert name in [one.section.page for one in help_texts.search(query)][:3]
    found = [one.section for one in help_texts.search("error classes")]
    assert "rror class" in f"{found[0].title} {found[0].heading}"
    assert len(found) > 1
    assert visitor.get("/help/nothing").status_code == 404


def test_the_glossary_explains(visitor: Visitor) -> None:
    page = visitor.get("/help/glossary").text
    for word in ("oracle", "split", "shard", "smoke run"):
        assert len(help_texts.glossary()[word]) > 20
        assert f'id="{word.replace(" ", "-")}"' in page


def test_a_word_on_a_page_says_what_it_means(server: Instance, visitor: Visitor) -> None:
    server.competition()
    page = visitor.get("/competitions/digits").text
    assert 'href="/help/glossary#forget-set" data-note="the training examples that must be forgotten"' in page
    assert 'href="/help"' in page


def test_every_operation_is_described_once(server: Instance, visitor: Visitor) -> None:
    document = server.client.get("/api/v1/openapi.json").json()
    keys = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert [name for name in document["components"]["schemas"] if "__" in name] == []  # two classes of one name
    page = visitor.get("/api/docs", headers={"Host": "evil.example"}).text
    assert len(keys) > 80
    assert [key for key in keys if page.count(f'id="{key}"') != 1] == []
    assert 'class="topbar"' in page
    assert "evil.example" not in page
    assert "$LETHE_URL/api/v1/accounts" in plain_text(page)
    assert not re.search(r"<script[^>]*swagger", page)


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


def test_a_title_is_the_first_sentence() -> None:
    titles = {
        "Show a board. And more.": "Show a board",
        "Stop it": "Stop it",
        "Keep 0.5 of it. Then stop.": "Keep 0.5 of it",
    }
    titles |= {"Send it: a `.py` file or a\nnotebook.": "Send it"}
    assert {text: first_sentence(text) for text in titles} == titles
