"""The last public page or board, shown while the database does not answer."""

import secrets

import pytest
from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from fastapi.testclient import TestClient
from starlette.responses import Response

from server.middleware import PROXY_CACHE
from server.web.cookies import SESSION_COOKIE
from server.web.last_answers import MAIN, LastAnswers

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
