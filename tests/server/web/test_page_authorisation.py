"""Every page and every form, asked by everybody.

A new page must be put into the table here before these tests pass: nobody adds one without saying who it is for.
"""

import re

import pytest
from fastapi.routing import iter_route_contexts

from server.main import create_app
from server.models.account import Role
from server.parsing import client as parsing
from server.parsing.tasks import TASKS
from tests.support.instance import Instance
from tests.support.web import Visitor

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
            "GET /",
            "GET /help",
            "GET /help/{name}",
            "GET /robots.txt",
            "GET /favicon.ico",
            "GET /healthz",
            "GET /readyz",
        ),
        *("GET /login", "POST /login", "GET /register", "POST /register", "GET /forgot", "POST /forgot"),
        *("GET /reset", "POST /reset", "GET /confirm", "POST /confirm", "GET /metrics"),
        *(f"GET {P}", f"GET {P}/pages/{{name}}", f"GET {P}/questions", f"GET {P}/pictures/{{name}}.png"),
        *(f"GET {P}/starter-kit.zip", f"GET {P}/starter.py", f"GET {P}/teams/{{team_id}}"),
        *(f"GET {P}/leaderboard", f"GET {P}/leaderboard/charts", f"GET {P}/leaderboard/figures/cost.json"),
        *(f"GET {P}/leaderboard/figures/{name}.json" for name in ("scores", "shake-up", "team")),
    ),
    ACCOUNT: (
        *(f"GET {P}/compare", f"GET {P}/compare/figures/pareto.json", f"GET {P}/submissions", f"GET {P}/submit"),
        *(f"GET {P}/submissions/{part}" for part in ("compare", "events", "rows")),
        *(
            f"GET {P}/team",
            f"GET {P}/join",
            f"GET {P}/team/join",
            f"POST {P}/team",
            f"POST {P}/team/act",
            f"POST {P}/team/invite",
        ),
        *(f"POST {P}/submit", f"POST {P}/questions", f"POST {P}/participation", f"POST {P}/join"),
        *("GET /account", "GET /account/second-factor", "POST /account/mail", "POST /account/mail/confirmation"),
        *("POST /account/password", "POST /account/tokens", "POST /account/tokens/{token_id}/revoke"),
        *(f"POST /account/second-factor/{act}" for act in ("begin", "on", "off")),
        *("POST /account/sessions/{session_id}/revoke", "POST /account/delete"),
    ),
    TEAM: (
        *(f"GET {OWN}", f"GET {OWN}/code", f"GET {OWN}/events", f"GET {OWN}/progress", f"GET {OWN}/source"),
        *(f"GET {OWN}/receipt", f"GET {OWN}/receipt.json"),
    ),
    TEAM_ALONE: (f"POST {OWN}/final", f"POST {OWN}/publication", f"GET {OWN}/cancel", f"POST {OWN}/cancel"),
    STAFF: (
        "GET /organise",
        "GET /organise/live",
        "GET /organise/events",
        "GET /organise/figures/throughput.json",
        "GET /organise/figures/failures.json",
        "GET /organise/new",
        "POST /organise/new",
        "POST /organise/new/check",
        "GET /organise/new/data",
        "POST /organise/new/data",
        "POST /organise/new/data/check",
        "GET /organise/benchmarks",
        "GET /organise/benchmarks/{slug}",
        "GET /organise/benchmarks/{slug}/figures/pareto.json",
        "GET /organise/benchmarks/{slug}/figures/examples.json",
        "GET /datasets",
        "POST /datasets",
        "POST /datasets/{name}/delete",
    ),
    ORGANISER: (
        f"GET {C}",
        f"GET {C}/live",
        f"GET {C}/events",
        f"GET {C}/teams",
        f"GET {C}/audit",
        f"GET {C}/submissions",
        f"GET {S}",
        f"GET {S}/figures/{{name}}.json",
        f"GET {S}/answers",
        f"GET {S}/compare",
        f"GET {S}/compare/{{other}}/{{name}}.json",
        f"GET {C}/edit",
        f"GET {C}/limits",
        f"GET {C}/words",
        f"GET {C}/participants",
        f"GET {C}/questions",
        f"POST {C}/questions",
        f"GET {C}/pages",
        f"POST {C}/pages",
        f"GET {C}/phases",
        f"POST {C}/phases",
        f"POST {C}/participants",
        f"POST {C}/participants/rules",
        f"GET {C}/splits/{{visibility}}",
        f"POST {C}/splits/{{visibility}}/replace",
        f"GET {C}/exports",
        f"GET {C}/exports/{{name}}",
        f"GET {C}/bundle.zip",
        f"GET {C}/rejudgings",
        f"GET {R}",
        f"GET {R}/live",
        f"GET {R}/events",
        f"POST {C}/rejudgings",
        f"POST {R}",
        f"POST {C}/edit",
        f"POST {C}/limits",
        f"POST {C}/words",
        f"POST {C}/organisers",
        f"POST {C}/act",
        f"POST {C}/teams/{{team_id}}",
        f"POST {C}/extend",
        f"POST {C}/announce",
        f"POST {C}/finals/{{submission_id}}",
        f"POST {C}/move",
        f"POST {C}/cancel-preparation",
        f"POST {C}/delete",
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
