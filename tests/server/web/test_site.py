"""What surrounds every page: files, help, the HTTP API's description, answers kept while the database is away."""

import base64
import hashlib
import json
import re
import secrets
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from fastapi.testclient import TestClient
from starlette.responses import Response

from server.config import get_settings
from server.main import create_app
from server.middleware import PROXY_CACHE
from server.template_environment import TEMPLATES
from server.web import help_texts, rendering
from server.web.assets import SHEET, SHEETS, STATIC, Assets, get_assets
from server.web.cookies import SESSION_COOKIE
from server.web.help_pages import first_sentence, sections
from server.web.last_answers import MAIN, LastAnswers
from tests.support.instance import Instance
from tests.support.web import Visitor, plain_text

VENDOR = STATIC / "vendor"


def test_an_asset_is_served_under_its_hash_and_kept_for_ever(server: Instance) -> None:
    answer = server.client.get(get_assets().url(SHEET))
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/css")
    assert "immutable" in answer.headers["cache-control"]
    unchanged = server.client.get(get_assets().url(SHEET), headers={"If-None-Match": answer.headers["etag"]})
    assert unchanged.status_code == 304
    old = server.client.get("/static/0000000000000000/css/lethe.css")
    assert (old.status_code, old.headers["cache-control"]) == (200, "no-cache")
    for path in ("../main.py", "%2e%2e/main.py", "vendor/vendor.json", "/etc/passwd"):
        assert server.client.get(f"/static/0/{path}").status_code == 404, path
    script = server.client.get(get_assets().url("js/page.js")).content
    expected = base64.b64encode(hashlib.sha384(script).digest()).decode()
    assert get_assets().integrity("js/page.js") == f"sha384-{expected}"


def test_a_sheet_names_other_files_by_their_hash(tmp_path: Path) -> None:
    (tmp_path / "font.woff2").write_bytes(b"glyphs")
    (tmp_path / "sheet.css").write_text('a { src: url("font.woff2"); } b { src: url("absent.woff2"); }')
    assets = Assets(tmp_path)
    sheet = assets.get("sheet.css")
    assert sheet is not None
    assert assets.url("font.woff2").encode() in sheet.body
    assert b'url("absent.woff2")' in sheet.body


def test_every_vendored_package_has_its_licence_and_version() -> None:
    record = json.loads((VENDOR / "vendor.json").read_text())
    assert all(set(facts) == {"version", "license", "integrity"} for facts in record.values())
    for folder in (path for path in VENDOR.iterdir() if path.is_dir()):
        assert any(path.name.startswith("LICENSE") for path in folder.iterdir()), folder.name


def test_no_template_holds_inline_script_style_or_foreign_address() -> None:
    for path in TEMPLATES.rglob("*.html"):
        text = path.read_text()
        assert not re.search(r"<script(?![^>]*\bsrc=)", text), path.name
        assert not re.search(r"<style|\bstyle=|\bon[a-z]+=\"", text), path.name
        assert not re.search(r"""(?:src|href|action)=["']?(?:https?:)?//""", text), path.name


def test_every_icon_that_is_named_is_in_the_sprite() -> None:
    sprite = (VENDOR / "lucide" / "icons.svg").read_text()
    known = set(re.findall(r'<symbol id="([a-z0-9-]+)"', sprite))
    named = {
        name for path in TEMPLATES.rglob("*.html") for name in re.findall(r'icon\("([a-z0-9-]+)"', path.read_text())
    }
    assert named <= known


def test_all_sheets_are_one_file_in_their_order(server: Instance) -> None:
    assert {path.name for path in (STATIC / "css").iterdir()} == {name.split("/")[-1] for name in SHEETS[1:]}
    page = server.client.get("/").text
    assert page.count('rel="stylesheet"') == 1
    body = server.client.get(get_assets().url(SHEET)).text
    assert body.index("--accent-wash") < body.index(".task-steps") < body.index("@media print")
    assert get_assets().get("css/theme.css") is None


def test_robots_and_icon_are_at_their_usual_addresses(server: Instance) -> None:
    robots = server.client.get("/robots.txt").text
    for path in ("/account", "/organise", "/submissions", "/api/v1/"):
        assert f"Disallow: {path}\n" in robots
    assert "Disallow: /\n" not in robots
    icon = server.client.get("/favicon.ico")
    assert (icon.headers["content-type"], icon.content[:4]) == ("image/x-icon", b"\0\0\1\0")


def test_shared_links_name_the_configured_address_never_the_requests(server, monkeypatch):
    assert 'property="og:image"' not in server.client.get("/login", headers={"Host": "evil.example"}).text
    configured = get_settings().model_copy(update={"public_url": "https://lethe.example/"})
    monkeypatch.setattr(rendering, "get_settings", lambda: configured)
    page = server.client.get("/login", headers={"Host": "evil.example"}).text
    assert 'content="https://lethe.example/login"' in page
    assert f'content="https://lethe.example{get_assets().url("img/share.png")}"' in page
    assert "evil.example" not in page


state = {"fails": False}


@pytest.fixture
def client() -> TestClient:
    app = FastAPI()
    app.add_middleware(LastAnswers, max_bytes=5000)
    state["fails"] = False

    @app.get("/public")
    async def public(size: int = 0) -> Response:
        if state["fails"]:
            return HTMLResponse("away", status_code=503)
        return HTMLResponse(MAIN.decode() + "hello" + secrets.token_hex(size), headers=PROXY_CACHE)

    @app.get("/private")
    async def private() -> Response:
        return HTMLResponse("away" if state["fails"] else "mine", status_code=503 if state["fails"] else 200)

    return TestClient(app)


def test_last_public_page_is_shown_to_everybody_and_says_so(client: TestClient) -> None:
    assert "as everybody saw it" not in client.get("/public").text
    assert client.get("/private").status_code == 200
    state["fails"] = True
    for cookies in ({}, {SESSION_COOKIE: "x"}):
        client.cookies.update(cookies)
        shown = client.get("/public")
        assert (shown.status_code, shown.headers["cache-control"]) == (200, "no-store")
        assert "as everybody saw it" in shown.text
        assert "hello" in shown.text
    assert client.get("/public?size=1").status_code == 503, "nobody asked for it"
    assert client.get("/private").status_code == 503, "no proxy may keep it"


def test_what_somebody_saw_who_is_logged_in_is_not_kept(client: TestClient) -> None:
    client.get("/public", headers={"Authorization": "Bearer x"})
    client.get("/public", headers={"Cookie": f"{SESSION_COOKIE}=x"})
    state["fails"] = True
    assert client.get("/public").status_code == 503


def test_kept_pages_have_a_bound_in_bytes(client: TestClient) -> None:
    for size in (1000, 1001, 1002):
        client.get("/public", params={"size": size})
    state["fails"] = True
    assert [client.get("/public", params={"size": size}).status_code for size in (1000, 1001, 1002)] == [503, 200, 200]


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
