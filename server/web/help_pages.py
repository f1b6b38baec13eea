"""Documentation inside the site: the participants' pages with a search, and the HTTP API's description."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Query, Request, Response

from server.config import get_settings
from server.web import help_texts
from server.web.deps import ViewerDep
from server.web.page_router import page_router
from server.web.rendering import page

router = page_router(is_public=True)

ADDRESS = "$LETHE_URL"  # never the request's own: the page is kept for everybody


@router.get("/help")
def help_index(
    request: Request,
    viewer: ViewerDep,  # noqa: ARG001 (the head names who is logged in)
    q: Annotated[str, Query(max_length=80)] = "",
) -> Response:
    """List the pages, or the sections that hold every word of `q`."""
    return page(
        request, "help.html", pages=help_texts.help_pages(), query=q.strip(), found=help_texts.search(q), shown=None
    )


@router.get("/help/{name}")
def help_page(name: str, request: Request, viewer: ViewerDep) -> Response:  # noqa: ARG001 (as above)
    pages = help_texts.help_pages()
    return page(request, "help.html", pages=pages, query="", found=[], shown=help_texts.help_page(name))


@router.get("/api/docs")
def api_page(request: Request, viewer: ViewerDep) -> Response:  # noqa: ARG001 (the head names who is logged in)
    document = request.app.openapi()
    described = sections(document, url=get_settings().public_url or ADDRESS)
    return page(request, "api.html", document=document, sections=described)


TITLES = {
    "accounts": "Accounts and tokens",
    "competitions": "Competitions",
    "teams": "Teams",
    "submissions": "Submissions",
    "leaderboard": "Leaderboard",
    "metrics": "Metrics",
    "organisers": "For organisers",
    "administrators": "For administrators",
    "workers": "For workers",
    "health": "Health",
}
METHODS = ("get", "post", "put", "patch", "delete")
PROBLEM_FROM = 400

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Parameter:
    """One parameter, or one value of a body. place: path, query, body; what: its type in words."""

    name: str
    place: str
    what: str
    required: bool
    text: str


@dataclass(frozen=True)
class Operation:
    """One thing that can be asked of the API."""

    key: str
    method: str
    path: str
    summary: str
    text: str
    fields: tuple[Parameter, ...]
    returns: str
    returned: tuple[Parameter, ...]
    problems: tuple[str, ...]
    example: str


def sections(document: Json, *, url: str) -> list[tuple[str, str, list[Operation]]]:
    """Return key, title and operations of each part of the API. url: of this server, for the examples."""
    by_tag: dict[str, list[Operation]] = {}
    for path, operations in document["paths"].items():
        for method in METHODS:
            if operation := operations.get(method):
                tag = operation.get("tags", ["health"])[0]
                by_tag.setdefault(tag, []).append(_operation(document, path, method, operation, url=url))
    order = [*TITLES, *(tag for tag in by_tag if tag not in TITLES)]
    return [(tag, TITLES.get(tag, tag.capitalize()), by_tag[tag]) for tag in order if tag in by_tag]


def first_sentence(text: str) -> str:
    """Return how a description begins, as a title: without its full stop."""
    return re.split(r"\.(?:\s|$)|:\s|;\s", " ".join(text.split()), maxsplit=1)[0]


def _operation(document: Json, path: str, method: str, operation: Json, *, url: str) -> Operation:
    body = _content(operation.get("requestBody", {}))
    parameters = [
        Parameter(p["name"], p["in"], _what(document, p["schema"]), p.get("required", False), p.get("description", ""))
        for p in operation.get("parameters", ())
        if p["in"] in ("path", "query")
    ]
    answers = operation.get("responses", {})
    good: Json = next((answers[code] for code in sorted(answers) if int(code) < PROBLEM_FROM), {})
    returned = _content(good)
    return Operation(
        key=operation["operationId"],
        method=method.upper(),
        path=path,
        summary=operation.get("summary", path),
        text=" ".join(operation.get("description", "").split()),
        fields=(*parameters, *_fields(document, body[1] if body else {}, place="body")),
        returns=_what(document, returned[1]) if returned and returned[1] else (returned[0] if returned else "nothing"),
        returned=tuple(_fields(document, returned[1].get("items", returned[1]), place="answer")) if returned else (),
        problems=tuple(
            f"{code} {answers[code].get('description', '')}" for code in answers if int(code) >= PROBLEM_FROM
        ),
        example=_example(document, method, url.rstrip("/") + path, body),
    )


def _content(holder: Json) -> tuple[str, Json] | None:
    """Return media type and schema of what is sent or answered; None where that is nothing."""
    for media_type, content in holder.get("content", {}).items():
        return media_type, content.get("schema", {})
    return None


def _resolved(document: Json, schema: Json) -> Json:
    name = schema.get("$ref", "").rpartition("/")[2]
    resolved: Json = document["components"]["schemas"][name] if name else schema
    return resolved


def _fields(document: Json, schema: Json, *, place: str) -> Iterator[Parameter]:
    whole = _resolved(document, schema)
    required = whole.get("required", ())
    for name, value in whole.get("properties", {}).items():
        yield Parameter(name, place, _what(document, value), name in required, value.get("description", ""))


def _what(document: Json, schema: Json) -> str:
    """Return a type in words: `text`, `list of LeaderboardRow`, `number or nothing`."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if options := schema.get("anyOf", schema.get("oneOf")):
        return " or ".join(dict.fromkeys(_what(document, option) for option in options))
    if "enum" in schema:
        return " or ".join(str(value) for value in schema["enum"])
    if "const" in schema:
        return str(schema["const"])
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_what(document, schema.get('items', {}))}"
    named = {
        "string": schema.get("format", "text"),
        "null": "nothing",
        "integer": "whole number",
        "boolean": "yes or no",
    }
    return str(named.get(kind, kind))


def _example(document: Json, method: str, address: str, body: tuple[str, Json] | None) -> str:
    """Return a command that asks for it, with the values that it needs to be filled in."""
    parts = ["curl", *([] if method == "get" else [f"-X {method.upper()}"]), '-H "Authorization: Bearer $TOKEN"']
    if body and body[0] == "application/json":
        needed = [field for field in _fields(document, body[1], place="body") if field.required]
        values = ", ".join(f'"{field.name}": <{field.what}>' for field in needed) or "…"
        parts.append(f"-H \"Content-Type: application/json\" -d '{{{values}}}'")
    elif body and body[0].startswith("multipart/"):
        parts.append("-F file=@submission.py")
    elif body:
        parts.append("--data-binary @file")
    return " ".join([*parts, f'"{address}"'])
