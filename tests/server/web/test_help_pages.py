"""The participants' documentation inside the site: every page, its links, its search, its glossary."""

import re

import pytest

from server.web import help_texts
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


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("why is my score low", "low-score"),
        ("your first score", "first-score"),
        ("crossfit", "scoring"),
        ("klom", "metrics"),
    ],
)
def test_search_finds_what_a_newcomer_asks(query: str, page: str) -> None:
    assert page in [one.section.page for one in help_texts.search(query)][:3]


def test_search_puts_headings_first() -> None:
    found = [one.section for one in help_texts.search("error classes")]
    assert "rror class" in f"{found[0].title} {found[0].heading}"
    assert len(found) > 1


def test_search_for_what_is_nowhere_says_so(visitor: Visitor) -> None:
    assert "No section holds these words" in plain_text(visitor.get("/help?q=no%3Cb%3E such").text)
    assert "<b>" not in visitor.get("/help?q=no%3Cb%3E+such").text


def test_an_unknown_page_is_not_found(visitor: Visitor) -> None:
    assert visitor.get("/help/nothing").status_code == 404


@pytest.mark.parametrize("word", ["oracle", "split", "shard", "smoke run"])
def test_the_glossary_explains(word: str, visitor: Visitor) -> None:
    assert len(help_texts.glossary()[word]) > 20
    assert f'id="{word.replace(" ", "-")}"' in visitor.get("/help/glossary").text


def test_a_word_on_a_page_says_what_it_means(server: Instance, visitor: Visitor) -> None:
    server.competition()
    page = visitor.get("/competitions/digits").text
    assert 'href="/help/glossary#forget-set" data-note="the training examples that must be forgotten"' in page
    assert 'href="/help"' in page
