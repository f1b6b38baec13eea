"""Every page and every form, asked by everybody; logging in, and what protects forms and browsers.

A new page must be put into the table here before these tests pass: nobody adds one without saying who it is for.
"""

import html
import re

import pytest
from fastapi.routing import iter_route_contexts

from server.config import get_settings
from server.db import now
from server.main import create_app
from server.middleware import CONTENT_SECURITY_POLICY
from server.models.account import Role, WebSession
from server.parsing import client as parsing
from server.parsing.tasks import TASKS
from server.web.cookies import CSRF_COOKIE, SESSION_COOKIE
from server.web.rendering import browser_name, local_path
from tests.support.instance import PASSWORD, Instance
from tests.support.web import Visitor, plain_text

STAFF, ORGANISER, ADMINISTRATOR = "staff", "organiser", "administrator"
ANYBODY, ACCOUNT, TEAM, TEAM_ALONE = "anybody", "account", "team and organisers", "team alone"
C = "/organise/{slug}"
S = f"{C}/submissions/{{submission_id}}"
R = f"{C}/rejudgings/{{rejudging_id}}"
P = "/competitions/{slug}"
OWN = "/submissions/{submission_id}"
FOR: dict[str, tuple[str, ...]] = {
    ANYBODY: (
        *(
            f"GET /{page}"
            for page in ("", "help", "help/{name}", "robots.txt", "favicon.ico", "healthz", "readyz", "metrics")
        ),
        *(f"{act} /{page}" for page in ("login", "register", "forgot", "reset", "confirm") for act in ("GET", "POST")),
        *(f"GET {P}{page}" for page in ("", "/pages/{name}", "/questions", "/pictures/{name}.png", "/teams/{team_id}")),
        *(f"GET {P}/{page}" for page in ("starter-kit.zip", "starter.py", "leaderboard", "leaderboard/charts")),
        *(f"GET {P}/leaderboard/figures/{name}.json" for name in ("scores", "shake-up", "team", "cost")),
    ),
    ACCOUNT: (
        *(f"GET {P}/{page}" for page in ("compare", "compare/figures/pareto.json", "submissions", "submit", "join")),
        *(f"GET {P}/submissions/{part}" for part in ("compare", "events", "rows")),
        *(f"GET {P}/{page}" for page in ("team", "team/join")),
        *(
            f"POST {P}/{page}"
            for page in ("team", "team/act", "team/invite", "submit", "questions", "participation", "join")
        ),
        *("GET /account", "GET /account/second-factor"),
        *(f"POST /account/{act}" for act in ("mail", "mail/confirmation", "password", "tokens", "delete")),
        *("POST /account/tokens/{token_id}/revoke", "POST /account/sessions/{session_id}/revoke"),
        *(f"POST /account/second-factor/{act}" for act in ("begin", "on", "off")),
    ),
    TEAM: tuple(
        f"GET {OWN}{part}" for part in ("", "/code", "/events", "/progress", "/source", "/receipt", "/receipt.json")
    ),
    TEAM_ALONE: (f"POST {OWN}/final", f"POST {OWN}/publication", f"GET {OWN}/cancel", f"POST {OWN}/cancel"),
    STAFF: (
        *(f"GET /organise{page}" for page in ("", "/live", "/events", "/new", "/new/data", "/benchmarks")),
        *(f"GET /organise/figures/{name}.json" for name in ("throughput", "failures")),
        *(f"POST /organise/new{page}" for page in ("", "/check", "/data", "/data/check")),
        *(
            f"GET /organise/benchmarks/{{slug}}{page}"
            for page in ("", "/figures/pareto.json", "/figures/examples.json")
        ),
        *("GET /datasets", "POST /datasets", "POST /datasets/{name}/delete"),
    ),
    ORGANISER: (
        *(f"GET {C}{page}" for page in ("", "/live", "/events", "/teams", "/audit", "/submissions", "/bundle.zip")),
        *(
            f"GET {S}{page}"
            for page in ("", "/figures/{name}.json", "/answers", "/compare", "/compare/{other}/{name}.json")
        ),
        *(f"GET {C}/{page}" for page in ("edit", "limits", "words", "participants", "questions", "pages", "phases")),
        *(f"POST {C}/{page}" for page in ("edit", "limits", "words", "participants", "questions", "pages", "phases")),
        *(f"GET {C}/{page}" for page in ("splits/{visibility}", "exports", "exports/{name}", "rejudgings")),
        *(f"GET {R}{page}" for page in ("", "/live", "/events")),
        *(
            f"POST {C}/{act}"
            for act in ("participants/rules", "splits/{visibility}/replace", "rejudgings", "organisers")
        ),
        *(
            f"POST {C}/{act}"
            for act in ("act", "teams/{team_id}", "extend", "announce", "finals/{submission_id}", "move")
        ),
        *(f"POST {R}", f"POST {C}/cancel-preparation", f"POST {C}/delete"),
    ),
    ADMINISTRATOR: ("GET /people", "POST /people/{name}", "POST /people/{name}/reset-link", "POST /organise/hosts"),
}
LET_IN = {
    STAFF: {"organiser elsewhere", "organiser", "administrator"},
    ORGANISER: {"organiser", "administrator"},
    ADMINISTRATOR: {"administrator"},
}
NAMES = {"organiser": "olga", "organiser elsewhere": "oskar", "administrator": "adam", "participant": "pia"}
NAMES |= {"team": "ada"}
LET_IN |= {ANYBODY: {"nobody", *NAMES}, ACCOUNT: set(NAMES), TEAM: {"team", "organiser", "administrator"}}
LET_IN[TEAM_ALONE] = {"team"}
ELSEWHERE = ("/api/", "/static/", "/{path:path}", "/logout", "/account/sessions/revoke")  # another table; ends a visit
TOKEN = re.compile(r'name="csrf_token" value="([0-9a-f]+)"')


def test_the_table_names_every_page_and_no_other() -> None:
    found = {
        f"{method} {context.path}"
        for context in iter_route_contexts(create_app().routes)
        if context.path and not context.path.startswith(ELSEWHERE)
        for method in (context.methods or set()) - {"HEAD"}
    }
    named = [route for routes in FOR.values() for route in routes]
    assert len(named) == len(set(named))
    assert set(named) == found


def test_each_role_is_let_in_exactly_where_it_belongs(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine a page may be answered 503 before the process that reads texts begins; who is let in is not
    # decided there, so the few texts are read here.
    monkeypatch.setattr(parsing, "run", lambda task, data, **options: TASKS[task](data, **options))
    kinds = {"administrator": Role.ADMINISTRATOR, "participant": Role.PARTICIPANT, "team": Role.PARTICIPANT}
    people = {role: server.account(name, kinds.get(role, Role.ORGANISER)) for role, name in NAMES.items()}
    server.competition(organiser=people["organiser"])
    submission = server.submit(server.headers(people["team"])).json()["id"]
    server.score(submission, 0.25)
    wrong = []
    for role in ("nobody", *NAMES):
        visitor = Visitor(server)
        if role in NAMES:
            visitor.log_in(NAMES[role])
        found = TOKEN.search(visitor.get("/account" if role in NAMES else "/login").text)
        assert found
        for routing_key, routes in FOR.items():
            for route in routes:
                let_in = role in LET_IN[routing_key]
                if let_in and route.endswith("/events"):
                    continue  # a stream that does not end; who is turned away gets no stream
                status, location = ask(server, route, submission, token=found[1])
                turned_away = (
                    status in (401, 403)
                    or location.startswith("/login")
                    or (routing_key in (TEAM, TEAM_ALONE) and status == 404)
                )
                if turned_away == let_in or status >= 500:
                    wrong.append(f"{role} got {status} from {route}, which is for {routing_key}")
    assert wrong == [], "\n".join(wrong)


def ask(server: Instance, route: str, submission: str, *, token: str) -> tuple[int, str]:
    method, path = route.split(" ", 1)
    values = {"slug": "digits", "submission_id": submission, "visibility": "public", "other": submission}
    names = {"name": "submissions.csv" if "exports" in path else "ada", "team_id": "0", "rejudging_id": "0"}
    names |= {"token_id": "0", "session_id": "0"}
    url = path.format(**values, **names)
    answer = server.client.request(
        method, url, headers={"X-CSRF-Token": token} if method == "POST" else {}, follow_redirects=False
    )
    return int(answer.status_code), answer.headers.get("location", "")


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


def test_stale_form_can_be_sent_again(server: Instance) -> None:
    server.organised()
    visitor = Visitor(server, "olga")
    old, of_submitting = visitor.token("/organise/new"), visitor.token("/competitions/digits/submit")
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
    sent = {"csrf_token": "0" * 80, "name": "ada", "password": "a secret of mine"}
    refused = visitor.client.post("/login", data=sent, headers={"Origin": "http://localhost"})
    assert refused.status_code == 403
    assert "a secret" not in refused.text, "passwords are not offered to be sent again"
    assert "Send it again" not in refused.text
    sent = {"csrf_token": of_submitting, "code": "kept = 'this'", "message": "second try"}
    refused = visitor.client.post("/competitions/digits/submit", data=sent, files={"file": ("", b"")})
    assert refused.status_code == 403
    for words in ("The form has expired", "kept = &#39;this&#39;", "second try"):
        assert words in refused.text


def test_ended_session_says_why_and_leads_back_to_the_form(server: Instance) -> None:
    server.competition()
    server.account("ada")
    visitor = Visitor(server, "ada")
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


def test_every_answer_carries_the_security_headers(server: Instance) -> None:
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert "default-src 'none'" in CONTENT_SECURITY_POLICY
    for path in ("/", "/login", "/nowhere", "/healthz", "/api/v1/competitions"):
        headers = server.client.get(path).headers
        assert headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")


def test_a_form_is_taken_with_a_token_of_its_own_browser_and_site_alone(server: Instance, visitor: Visitor) -> None:
    server.account("ada")
    sent = {"name": "ada", "password": PASSWORD}
    others = visitor.token()
    assert others != visitor.token()
    visitor.client.cookies.clear()
    visitor.get("/login")
    for fields in (sent, sent | {"csrf_token": others}):
        answer = visitor.client.post("/login", data=fields, follow_redirects=False)
        assert (answer.status_code, SESSION_COOKIE in answer.cookies) == (403, False)
    foreign = ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"})
    for headers in foreign:
        assert visitor.post("/login", sent, headers=headers).status_code == 403
    before = visitor.token()
    assert visitor.log_in("ada").status_code == 303
    assert visitor.client.post("/logout", data={"csrf_token": before}).status_code == 403, "it is of before the log-in"


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
    ("sent", "name"),
    [
        ("Mozilla/5.0 (X11; Linux x86_64) Chrome/126.0 Safari/537.36", "Chrome on Linux"),
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/126.0 Safari/537.36 Edg/126.0", "Edge on Windows"),
        ("Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:127.0) Gecko/20100101 Firefox/127.0", "Firefox on Windows"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) Safari/604.1", "Safari on an iPhone"),
        ("Mozilla/5.0 (Linux; Android 14; Pixel 8) Chrome/126.0 Mobile Safari/537.36", "Chrome on Android"),
        ("curl/8.5.0", "curl/8.5.0"),
        ("", "unknown browser"),
    ],
)
def test_a_browser_is_named_with_its_system(sent: str, name: str) -> None:
    assert browser_name(sent) == name


def test_a_registered_person_is_logged_in_and_greeted_once(server, visitor, monkeypatch):
    wrong = visitor.post("/register", {"name": "ada", "password": "short-one"})
    assert (wrong.status_code, "short-one" in wrong.text) == (422, False), "the password is never sent back"
    assert 'aria-describedby="password-hint password-error"' in wrong.text
    assert "needs 10 to 200 characters" in wrong.text
    assert 'value="ada"' in wrong.text
    answer = visitor.post("/register", {"name": "ada", "password": PASSWORD, "email": "ada@example.org"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    home = plain_text(visitor.get("/").text)
    assert "Welcome, ada." in home
    assert "Log out" in home
    assert "Welcome" not in visitor.get("/").text
    monkeypatch.setenv("LETHE_OPEN_REGISTRATION", "false")
    get_settings.cache_clear()
    visitor = Visitor(server)
    assert "Registration is closed" in visitor.get("/register").text
    assert visitor.post("/register", {"name": "bob", "password": PASSWORD}, page="/login").status_code == 403


def test_wrong_passwords_say_no_more_than_wrong_names_and_are_slowed_down(server: Instance, visitor: Visitor) -> None:
    server.account("ada")
    for name in ("eve", *["ada"] * 10):
        answer = visitor.log_in(name, "something else")
        assert (answer.status_code, "No account has this name and password" in answer.text) == (422, True)
    assert visitor.log_in("ada", "something else").status_code == 429


def test_a_log_in_leads_only_to_this_server() -> None:
    elsewhere = ("https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)", "", None, "/a\nb")
    assert {local_path(target) for target in elsewhere} == {"/"}
    assert local_path("/competitions/digits/submit?x=1") == "/competitions/digits/submit?x=1"


def test_an_error_page_leads_back_to_where_one_came_from(server: Instance, visitor: Visitor) -> None:
    server.organised()
    visitor.log_in("olga")
    came_from = "/organise/digits/submissions?stage=failed"
    fields = {"act": "explode", "submission": "none", "reason": ""}
    answer = visitor.post(
        "/organise/digits/act", fields, page="/organise/digits", headers={"Referer": f"http://localhost{came_from}"}
    )
    assert (answer.status_code, f'href="{came_from}"' in answer.text) == (422, True)
    for referer in ("https://elsewhere.example/", "http://localhost//elsewhere.example", "", "nonsense"):
        answer = visitor.get("/nowhere", headers={**HTML, "Referer": referer})
        text = plain_text(answer.text)
        assert answer.status_code == 404
        assert "Nothing has the address /nowhere" in text
        assert "Back" not in text
        assert "request" not in text
