"""Every route, asked by everybody: who may not be there is turned away, and who may is not.

A new route must be put into the table here before these tests pass: nobody adds one without saying who it is for.
"""

from collections.abc import Iterator

import pytest
from fastapi.routing import APIRoute
from httpx import Response

from server.accounts import tokens
from server.main import create_app
from server.models.account import Account, Role, Scope
from tests.support.instance import Instance, competition_toml
from tests.support.routes import ACCOUNT, ADMINISTRATOR, ANYBODY, FOR, MAKES_COMPETITIONS, ORGANISER, TEAM, WORKER

PEOPLE = ("anonymous", "participant", "other team's", "organiser elsewhere", "organiser", "administrator")
TURNED_AWAY = {
    ANYBODY: {},
    ACCOUNT: {"anonymous": {401}},
    TEAM: {"anonymous": {401}, "other team's": {404}, "organiser elsewhere": {404}},
    MAKES_COMPETITIONS: {"anonymous": {401}, "participant": {403}, "other team's": {403}},
    ORGANISER: {"anonymous": {401}, "participant": {403}, "other team's": {403}, "organiser elsewhere": {403}},
    ADMINISTRATOR: {
        "anonymous": {401},
        "participant": {403},
        "other team's": {403},
        "organiser elsewhere": {403},
        "organiser": {403},
    },
    WORKER: {role: {401} for role in PEOPLE},
}
WORKERS = ("worker", "worker elsewhere", "revoked worker")
TOML = {"Content-Type": "application/toml"}
OF_THE_PARTICIPANT_ALONE = (
    "selection",
    "publication",
    "cancel",
)  # refused to organisers too: they have acts of their own


def documented() -> set[str]:
    paths = create_app().openapi()["paths"]
    return {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}


def test_table_names_every_documented_route_and_no_other() -> None:
    named = [route for routes in FOR.values() for route in routes]
    assert len(named) == len(set(named))
    assert set(named) == documented()


def test_every_route_under_the_api_is_documented() -> None:
    hidden = [
        route.path
        for route in create_app().routes
        if isinstance(route, APIRoute) and route.path.startswith("/api/") and not route.include_in_schema
    ]
    assert hidden == []


def test_each_role_is_let_in_exactly_where_it_belongs(server: Instance) -> None:
    owner, foreign = server.account("olga", Role.ORGANISER), server.account("oskar", Role.ORGANISER)
    competition = server.competition(organiser=owner)
    server.competition("elsewhere", organiser=foreign)
    callers = {
        "anonymous": {},
        "participant": server.participant("pia"),
        "other team's": server.participant("otto"),
        "organiser elsewhere": server.headers(foreign),
        "organiser": server.headers(owner),
        "administrator": server.headers(server.account("adam", Role.ADMINISTRATOR)),
        **_workers(server, owner, foreign),
    }
    submission = server.submit(callers["participant"]).json()["id"]
    server.submit(callers["other team's"])
    wrong = [
        f"{role} got {status} from {route}, which is for {audience}"
        for audience, route in _routes()
        for role, headers in callers.items()
        if not _is_right(
            audience, role, route, status := _answer(server, route, headers, competition.slug, submission).status_code
        )
    ]
    assert wrong == []


SCOPES = {TEAM: Scope.SUBMIT, MAKES_COMPETITIONS: Scope.ORGANISE, ORGANISER: Scope.ORGANISE, ADMINISTRATOR: Scope.FULL}


@pytest.mark.parametrize("scope", list(Scope))
def test_each_scope_is_let_in_exactly_where_it_belongs(server: Instance, scope: Scope) -> None:
    adam = server.account("adam", Role.ADMINISTRATOR)
    server.competition(organiser=adam)
    submission = server.submit(server.participant("pia")).json()["id"]
    with server.database.write() as session:
        headers = {"Authorization": f"Bearer {tokens.issue(session, adam, label='test', scope=scope).token}"}
    wrong = []
    for audience, route in _routes():
        if audience in (ANYBODY, WORKER):
            continue
        answer = _answer(server, route, headers, "digits", submission)
        is_refused = answer.status_code == 403 and "This token's scope is" in answer.text
        if is_refused == scope.includes(_scope(audience, route)):
            wrong.append(f"{route}: {answer.status_code} {answer.text[:200]}")
    assert wrong == []


def _scope(audience: str, route: str) -> Scope:
    if route.startswith("GET "):
        return Scope.READ
    is_of_account = "/v1/me/" in route or "/v1/tokens/" in route
    return SCOPES.get(audience) or (Scope.FULL if is_of_account else Scope.SUBMIT)


def _workers(server: Instance, owner: Account, foreign: Account) -> dict[str, dict[str, str]]:
    """Return what workers call with: of the competition, of another, and with a token that was revoked."""
    made = {
        "worker": _token(server, owner, "digits"),
        "worker elsewhere": _token(server, foreign, "elsewhere"),
        "revoked worker": _token(server, owner, "digits"),
    }
    revoked = made["revoked worker"]["id"]
    server.client.delete(f"/api/v1/competitions/digits/worker-tokens/{revoked}", headers=server.headers(owner))
    return {role: {"Authorization": f"Bearer {token['token']}"} for role, token in made.items()}


def _token(server: Instance, organiser: Account, slug: str) -> dict[str, str]:
    made = server.client.post(
        f"/api/v1/competitions/{slug}/worker-tokens", headers=server.headers(organiser), json={"name": "w"}
    )
    return made.json()  # type: ignore[no-any-return]


def _routes() -> Iterator[tuple[str, str]]:
    """Yield what changes nothing first: a competition that was closed takes no more submissions."""
    pairs = [(audience, route) for audience, routes in FOR.items() for route in routes]
    yield from sorted(pairs, key=lambda pair: (not pair[1].startswith("GET"), pair[0] == ORGANISER))


def _is_right(audience: str, role: str, route: str, status: int) -> bool:
    if status >= 500 and route != "GET /readyz":
        return False
    if role in WORKERS:
        return _is_right_for_a_worker(audience, role, status)
    expected = TURNED_AWAY[audience].get(role)
    if expected is not None:
        return status in expected
    if audience == TEAM and role in ("organiser", "administrator"):
        return status not in (401, 403) or route.endswith(OF_THE_PARTICIPANT_ALONE)
    if audience == ACCOUNT:
        return status != 401  # what is not theirs answers 403 or 404, as each route's own tests say
    return status not in (401, 403)


def _is_right_for_a_worker(audience: str, role: str, status: int) -> bool:
    """A worker token opens the routes of workers and nothing else; where anybody may be, it is no better than none."""
    if audience == WORKER and role != "revoked worker":
        return status not in (401, 403)
    return status == 401 or (audience == ANYBODY and status < 500)


def _answer(server: Instance, route: str, headers: dict[str, str], slug: str, submission: str) -> Response:
    method, path = route.split(" ", 1)
    url = path.format_map(_Values(slug=slug, submission_id=submission, table="submissions", name="pia"))
    if route == "DELETE /api/v1/tokens/{token_id}":
        url = "/api/v1/tokens/0000000000000000"
    if route == "POST /api/v1/competitions":
        return server.client.post(url, headers=headers | TOML, content=competition_toml("another"))
    body = {} if method in ("POST", "PUT", "PATCH") else None
    return server.client.request(method, url, headers=headers, json=body)


class _Values(dict[str, str]):
    """Path values; any other is an id that nothing has."""

    def __missing__(self, key: str) -> str:
        if key in ("shard_id", "attempt"):
            return "1"
        if key == "sha256":
            return "0" * 64
        return "0000000000000000"
