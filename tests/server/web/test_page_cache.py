"""Pages kept for those who are not logged in."""

import gzip
import math
import re
import secrets
from collections import Counter

import pytest
from fastapi import Request, Response
from fastapi.responses import HTMLResponse

from server import cost_cache
from server.web.cookies import SESSION_COOKIE
from server.web.page_cache import AnonymousPages
from tests.support.instance import Instance
from tests.support.web import Visitor, counted_queries


def request(*, path: str = "/", query: str = "", cookie: str = "", accept: str = "") -> Request:
    headers = [(b"cookie", cookie.encode()), (b"accept-encoding", accept.encode())]
    scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": headers}
    return Request({**scope, "server": ("localhost", 80), "scheme": "http"})


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def kept(pages: AnonymousPages, response: Response, *, cost_s: float = 0.1) -> Response | None:
    key = pages.key(request())
    assert key
    pages.keep(key, response, path_params={}, cost_s=cost_s)
    return pages.get(key, request())


def test_a_page_is_kept_for_twenty_times_its_cost() -> None:
    clock = Clock()
    pages = AnonymousPages(clock)
    assert kept(pages, HTMLResponse("hello"), cost_s=0.1) is not None
    key = pages.key(request())
    assert key
    clock.now = 1.9
    assert pages.get(key, request()) is not None
    clock.now = 2.1
    assert pages.get(key, request()) is None, "the first who finds it stale makes it again"
    assert pages.get(key, request()) is not None, "the others meanwhile get the old one"


def test_the_kept_page_is_compressed_for_those_who_take_that() -> None:
    pages = AnonymousPages()
    kept(pages, HTMLResponse("hello"))
    key = pages.key(request())
    assert key
    answer = pages.get(key, request(accept="gzip"))
    assert answer is not None
    assert gzip.decompress(bytes(answer.body)) == b"hello"
    plain = pages.get(key, request())
    assert plain is not None
    assert bytes(plain.body) == b"hello"
    assert "content-encoding" not in plain.headers


def test_pages_of_many_queries_have_a_bound_in_bytes() -> None:
    pages = AnonymousPages(most=2000)
    for number in range(200):
        asked = request(path=f"/{number % 2}", query=f"q={number}")
        key = pages.key(asked)
        assert key
        pages.keep(key, HTMLResponse(secrets.token_hex(200)), path_params={}, cost_s=1.0)
    assert 0 < pages._total <= 2000
    assert pages._total == sum(len(kept.compressed) for kept in pages._kept.values())
    assert pages.get(key, asked) is not None, "the newest is kept"
    assert pages.holds("/0")
    for number in range(10):
        pages.keep(("/2", str(number), ""), HTMLResponse(secrets.token_hex(200)), path_params={}, cost_s=1.0)
    assert not pages.holds("/0")


def test_who_is_logged_in_gets_no_kept_page() -> None:
    assert AnonymousPages().key(request(cookie=f"{SESSION_COOKIE}=x")) is None


def test_themes_are_kept_apart() -> None:
    pages = AnonymousPages()
    assert pages.key(request(cookie="lethe_theme=dark")) != pages.key(request())


def test_what_sets_a_cookie_or_fails_is_not_kept() -> None:
    pages = AnonymousPages()
    with_cookie = HTMLResponse("hello")
    with_cookie.set_cookie("a", "b")
    assert kept(pages, with_cookie) is None
    assert kept(pages, HTMLResponse("no", status_code=404)) is None


@pytest.fixture
def keeps_pages(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """The instance keeps each page for the longest time, however quickly it was made."""
    monkeypatch.setattr(cost_cache, "KEPT_PER_SECOND_OF_COST", math.inf)


@pytest.mark.usefixtures("keeps_pages")
def test_a_kept_leaderboard_asks_the_database_nothing(server: Instance, visitor: Visitor) -> None:
    server.competition()
    visitor.get("/competitions/digits/leaderboard")
    with counted_queries(server.database.engine) as queries:
        answer = visitor.get("/competitions/digits/leaderboard")
    assert answer.status_code == 200
    assert queries == []


@pytest.mark.usefixtures("keeps_pages")
def test_what_an_organiser_saw_is_not_shown_to_others(server: Instance, visitor: Visitor) -> None:
    server.account("ada")
    server.competition()
    visitor.log_in("ada")
    visitor.get("/competitions/digits/leaderboard")
    visitor.post("/logout", page="/")
    visitor.client.cookies.clear()
    assert "ada" not in visitor.get("/competitions/digits/leaderboard").text


@pytest.mark.usefixtures("keeps_pages")
def test_who_has_the_kept_page_already_is_told_so(server: Instance, visitor: Visitor) -> None:
    server.competition()
    first = visitor.get("/competitions/digits/leaderboard")
    again = visitor.get("/competitions/digits/leaderboard", headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304
    assert again.content == b""
    assert again.headers["content-security-policy"]


@pytest.mark.usefixtures("keeps_pages")
def test_kept_pages_are_counted_by_their_route(server: Instance, visitor: Visitor) -> None:
    server.competition()
    before = _served(server)
    for _ in range(2):
        visitor.get("/competitions/digits/leaderboard")
    after = _served(server)
    assert after["/competitions/{slug}/leaderboard"] == before["/competitions/{slug}/leaderboard"] + 2
    assert after["none"] == before["none"]


def _served(server: Instance) -> Counter[str]:
    """Return how many pages were served by route: other tests of this process count too."""
    served: Counter[str] = Counter()
    found = r'lethe_http_requests_total{method="GET",route="([^"]*)",status="200"} ([0-9.]+)'
    for route, count in re.findall(found, server.client.get("/metrics").text):
        served[route] += int(float(count))
    return served
