"""Every field that a team or a visitor sees is of a type that only the gate makes, or is declared with a reason."""

import ast
import typing
from collections.abc import Iterator, Mapping
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, ForwardRef, NewType, get_args, get_origin, get_type_hints

import jinja2
import pytest
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel
from sqlalchemy import inspect

import server as server_package
from server.accounts import sessions
from server.db import now
from server.disclosure import gate, shown_progress
from server.disclosure.fields import ANY, DECLARED, GATE_FIELDS
from server.main import create_app
from server.models.evaluation import MetricResult, PublicScore, Shard, ShardAttempt
from server.models.submission import Fault, Submission
from server.web.cookies import SESSION_COOKIE
from tests.support.instance import Instance
from tests.support.routes import ACCOUNT, ANYBODY, FOR, TEAM, addresses

SHOWN = frozenset({gate.ShownNumber, gate.ShownMoment, gate.ShownText, gate.ShownTable})
FILES = frozenset({"CompetitionFile", "Limits"})  # what organisers wrote: its fields are declared by whoever holds it
WITHOUT_A_MODEL = frozenset(  # what such a route sends is not JSON, or nothing
    {
        "GET /api/v1/submissions/{submission_id}/code",
        "GET /api/v1/submissions/{submission_id}/log",
        "GET /api/v1/competitions/{slug}/starter-kit",
        "DELETE /api/v1/tokens/{token_id}",
        "PUT /api/v1/me/password",
        "POST /api/v1/me/deletion",
        "POST /api/v1/competitions/{slug}/team/leave",
        "DELETE /api/v1/competitions/{slug}/team/invitations/{invitation_id}",
        "POST /api/v1/competitions/{slug}/invitations/{invitation_id}/decline",
        "DELETE /api/v1/competitions/{slug}/team/merges/{request_id}",
    }
)
ROWS = frozenset({"Submission", "Competition", "Team", "Account", "ApiToken", "WebSession"})
FULLY_OPEN = (
    "[metric]\nshow_intervals = true\nshow_breakdown = true\nbootstrap_resamples = 20\n"
    '[report]\nmetrics = [{id = "f"}]\ncolumns = ["f"]\nvisible_to_participants = "all"\n'
)


@cache
def declared() -> frozenset[tuple[str, str]]:
    return frozenset(
        (owner, name)
        for reasons in DECLARED
        for by_class in reasons.values()
        for owner, names in by_class.items()
        for name in names.split()
    )


def is_gated(annotation: Any) -> bool:
    """Return whether all that a field can hold is made by the gate, or is a class whose own fields are looked at."""
    if annotation in SHOWN or annotation is type(None):
        return True
    if isinstance(annotation, ForwardRef):
        return True  # of a class that `models` finds by itself
    if get_origin(annotation) in (dict, Mapping, typing.Mapping):
        return is_gated(get_args(annotation)[1])
    if get_origin(annotation) is not None or isinstance(annotation, UnionType):
        return all(is_gated(each) for each in get_args(annotation) if each is not Ellipsis)
    return isinstance(annotation, type) and (has_fields(annotation) or hasattr(annotation, "__mapper__"))


def has_fields(found: Any) -> bool:
    return hasattr(found, "model_fields") or is_dataclass(found) or hasattr(found, "_fields")


def hints(found: type) -> dict[str, Any]:
    if issubclass(found, BaseModel):
        return {name: field.annotation for name, field in found.model_fields.items()}
    if hasattr(found, "__mapper__"):
        return {column.key: column.columns[0].type.python_type for column in inspect(found).column_attrs}
    return {name: hint for name, hint in get_type_hints(found).items() if name in names_of(found)}


def names_of(found: type) -> tuple[str, ...]:
    return found._fields if hasattr(found, "_fields") else tuple(each.name for each in dataclass_fields(found))


def undeclared(classes: set[type]) -> list[str]:
    return sorted(
        f"{found.__name__}.{name}"
        for found in classes
        for name, annotation in hints(found).items()
        if not is_gated(annotation) and not any(is_declared(base, name) for base in found.__mro__)
    )


def is_declared(found: type, name: str) -> bool:
    """Return whether a class's own field is declared; ANY is of those that it has, not of a subclass's."""
    if (found.__name__, name) in declared():
        return True
    return (found.__name__, ANY) in declared() and name in hints(found)


def models(annotation: Any) -> Iterator[type]:
    """Yield the classes with fields that an answer of this type holds, at any depth."""
    if isinstance(annotation, type) and has_fields(annotation):
        yield annotation
        for hint in hints(annotation).values():
            yield from models(hint)
    for each in get_args(annotation):
        yield from models(each)


def shown_models() -> set[type]:
    wanted = {route for audience in (ANYBODY, ACCOUNT, TEAM) for route in FOR[audience]}
    found: set[type] = set()
    without = set()
    for context in iter_route_contexts(create_app().routes):
        for route in {f"{method} {context.path}" for method in context.methods or ()} & wanted:
            answer = getattr(context.route, "response_model", None)
            found |= set(models(answer))
            if answer is None:
                without.add(route)
    assert without == WITHOUT_A_MODEL
    return found


def test_every_field_of_an_answer_passes_the_gate_or_is_declared() -> None:
    found = shown_models()
    assert {"SubmissionOut", "LeaderboardRow", "ComparedValue", "MetricValue"} <= {each.__name__ for each in found}
    assert undeclared(found) == []


def test_new_field_that_nobody_declared_is_found() -> None:
    class ScoreOut(BaseModel):
        final_score: gate.ShownNumber
        leaked: float | None

    class SubmissionOut(BaseModel):
        score: list[ScoreOut] | None

    assert undeclared(set(models(dict[str, SubmissionOut]))) == ["ScoreOut.leaked"]


def test_only_the_gate_makes_what_is_shown() -> None:
    names = {each.__name__ for each in SHOWN if isinstance(each, NewType)}
    for path in sorted(Path(server_package.__file__).parent.rglob("*.py")):
        if path != Path(gate.__file__):
            calls = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
            assert not [call.id for call in calls if isinstance(call, ast.Name) and call.id in names], path
            text = path.read_text()
            assert not [name for name in names if f"gate.{name}(" in text], path


def test_declared_functions_are_of_the_gate() -> None:
    assert all(callable(getattr(gate, name, None) or getattr(shown_progress, name)) for name in GATE_FIELDS)


@pytest.fixture
def pages(server: Instance, monkeypatch: pytest.MonkeyPatch) -> tuple[set[str], set[type]]:
    """Return the names that pages were given for a team and for visitors, and the classes of all values in them."""
    names, found = set(), set()
    render = jinja2.Template.render

    def noted(template: jinja2.Template, *given: Any, **more: Any) -> str:
        context = dict(*given, **more)
        names.update(context)
        for name, value in context.items():
            if name != "request":
                collect(value, found)
        return render(template, *given, **more)

    monkeypatch.setattr(jinja2.Template, "render", noted)
    ask_for_pages(server)
    return names, found


def collect(value: Any, found: set[type], seen: set[int] | None = None) -> None:
    """Add the classes of a value and of all that can be reached from it by a template."""
    seen = set() if seen is None else seen
    kind = type(value)
    if id(value) in seen or kind.__name__ in FILES:
        return
    seen.add(id(value))
    if hasattr(kind, "__mapper__"):
        found.add(kind)
        state = inspect(value)
        loaded = {each.key for each in state.mapper.relationships} - state.unloaded
        for name in loaded:
            collect(getattr(value, name), found, seen)
    elif isinstance(value, Mapping):
        for each in value.values():
            collect(each, found, seen)
    elif has_fields(kind):
        found.add(kind)
        for name in names_of(kind) if not isinstance(value, BaseModel) else kind.model_fields:
            collect(getattr(value, name), found, seen)
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            collect(each, found, seen)


def ask_for_pages(server: Instance) -> None:
    server.competition(extra=FULLY_OPEN)
    ada = server.account("ada")
    headers = server.headers(ada)
    with server.database.write() as session:
        cookie = sessions.create(session, ada, user_agent="test", lifetime=timedelta(days=1))
    sent = [server.submit(headers, message=str(number)).json()["id"] for number in range(5)]
    rival = server.submit(server.participant("bob")).json()["id"]
    for submission in (*sent[:2], sent[4], rival):
        server.score(submission, 0.1)
    server.fail(sent[2], Fault.PARTICIPANT)
    with server.database.write() as session:
        for score in session.query(PublicScore):
            score.details = {
                "run_wall_time_s": 1.0,
                "epsilon_percentiles": dict.fromkeys(("5", "25", "50", "75", "95"), 1.0),
            }
            score.interval_low, score.interval_high = 0.05, 0.2
            score.replicates = {"seed": 1, "n_models": 4, "factor": 1.0, "headline": [0.1, 0.2, 0.1, 0.2]}
        for row in session.query(MetricResult):
            row.value, row.computed_at, row.metric_version = 0.5, now(), 1
        for shard in session.query(Shard):
            session.add(ShardAttempt(shard_id=shard.id, worker="w", attempt=1, outcome="done", ended_at=now()))
        session.get_one(Submission, sent[2]).error = {"message": "it broke", "file": "submission.py", "line": 2}
    server.client.post("/api/v1/competitions/digits/questions", headers=headers, json={"text": "How long?"})
    compare = f"/competitions/digits/submissions/compare?first={sent[0]}&second={sent[1]}"
    for number, submission in enumerate(sent):
        names = {"slug": "digits", "submission_id": submission, "team_id": "x", "name": "x"}
        every = [address for _get, address in addresses(names, frozenset({"GET"}))]
        mine = [one for one in every if "organise" not in one and not one.startswith("/api") and "events" not in one]
        for address in [one for one in mine if number == 0 or submission in one] + [compare]:
            for cookies in ({}, {"Cookie": f"{SESSION_COOKIE}={cookie}"}):
                assert server.client.get(address, headers=cookies, follow_redirects=False).status_code < 500, address


def test_every_value_of_a_page_passes_the_gate_or_is_declared(pages: tuple[set[str], set[type]]) -> None:
    names, found = pages
    kinds = {each.__name__ for each in found}
    shown = {"SubmissionView", "ShownScore", "BreakdownView", "FailureTexts", "ShownPaired", "Board"}
    assert shown | {"SubmissionComparison"} <= kinds
    rows = {each.__name__ for each in found if hasattr(each, "__mapper__")}
    assert rows <= ROWS, "a row that holds hidden values is within reach of a template"
    assert undeclared(found) == []
    plain = {name for owner, name in declared() if owner == "page"}
    values = {"view", "views", "board", "boards", "rows", "columns", "own", "leader", "strip", "team", "place"}
    values |= {"standing", "breakdown", "oracle", "failure", "events", "paired", "first", "second", "found", "quota"}
    values |= {"context", "metric_tables", "has_history", "groups", "ends_next", "unfinished", "asked"}
    assert " ".join(sorted(names - plain - values)) == ""
    there = {(each.__name__, name) for each in found | shown_models() for name in (*hints(each), ANY)}
    assert {(owner, name) for owner, name in declared() if owner != "page"} - there == set(), "declared, and not there"
