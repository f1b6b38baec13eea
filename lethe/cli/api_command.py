"""`lethe api METHOD PATH`: any request of the HTTP API, with the stored log-in."""

import json
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import typer

from lethe.cli.context import PublicServer, value_of
from lethe.cli.output import console, print_json
from lethe.client.api import TOML, UPLOAD_TIMEOUT_S, ApiError, JsonObject, LetheClient
from lethe.errors import InvalidInput
from lethe.text_files import SIGNATURE, read_text

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
BASE = "/api/v1"
STDIN = "-"
NAME = re.compile(r"[^\[\]]+(\[[^\[\]]+\])*(\[\])?")  # team, limits[team_size], add[]
KEYS = re.compile(r"[^\[\]]+|(?<=\[)(?=\])")


def register_commands(app: typer.Typer) -> None:
    app.command("api")(api)


def api(
    server: PublicServer,
    method: Annotated[str, typer.Argument(help=f"{', '.join(METHODS)}.", metavar="METHOD")],
    path: Annotated[str, typer.Argument(help=f"Below {BASE}, such as /competitions/digits/terms.", metavar="PATH")],
    *,
    fields: Annotated[
        list[str] | None,
        typer.Option(
            "--field",
            "-f",
            metavar="NAME=VALUE",
            help="A field of the body; with GET and DELETE, of the query. VALUE is JSON, else text; of @FILE, the "
            "file's text. May be repeated.",
        ),
    ] = None,
    file: Annotated[
        str | None, typer.Option("--file", "-F", metavar="FILE", help="The body: JSON or TOML; - is standard input.")
    ] = None,
    upload: Annotated[
        Path | None, typer.Option("--upload", help="Send a form with this file.", exists=True, dir_okay=False)
    ] = None,
    paginate: Annotated[bool, typer.Option("--paginate", help="With GET: all pages of a list.")] = False,
) -> None:
    """Send any request of the HTTP API, and print the answer. With --json, print an error as JSON too.

    The page /api/docs of the server shows every request. Text and files are printed as they are: lethe api GET
    /submissions/ID/code > FILE.
    """  # fmt: skip
    method = method.upper()
    if method not in METHODS:
        raise InvalidInput(f"METHOD {method!r} must be one of {', '.join(METHODS)}")
    place, query = _address(path)
    given = []
    for text in fields or ():
        name, sign, value = text.partition("=")
        if not (name and sign):
            raise InvalidInput(f"--field {text!r} must have the form NAME=VALUE")
        given.append((name, value))
    with ExitStack() as stack:
        if method in ("GET", "DELETE"):
            if file is not None or upload is not None:
                raise InvalidInput(f"{method} takes no body: --file and --upload go with POST, PUT and PATCH")
            request: JsonObject = {"params": [*query, *given]}
        else:
            request = {"params": query, **_body(given, file=file, upload=upload, stack=stack)}
        try:
            if paginate:
                print_json(_all_pages(server.client, method, place, request["params"]))
            else:
                _print(server.client.request(method, place, **request))
        except ApiError as error:
            if not server.as_json:
                raise
            print_json(error.problem)
            raise typer.Exit(1) from error


def _address(path: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the path below the API's address, and its query. Raises InvalidInput for the address of a server."""
    parts = urlsplit(path)
    if parts.scheme or parts.netloc:
        raise InvalidInput(f"PATH {path!r} must be a path, such as /competitions; --url names the server")
    return "/" + parts.path.removeprefix(BASE).lstrip("/"), parse_qsl(parts.query, keep_blank_values=True)


def _body(given: Sequence[tuple[str, str]], *, file: str | None, upload: Path | None, stack: ExitStack) -> JsonObject:
    """Return what httpx is told of the body: a form with an upload, a file as it is, or JSON."""
    if upload is not None:
        if file is not None:
            raise InvalidInput("give --file or --upload, not both")
        part = (upload.name, stack.enter_context(upload.open("rb")), "application/octet-stream")
        timeout = httpx.Timeout(UPLOAD_TIMEOUT_S).as_dict()
        return {"files": {"file": part}, "data": dict(given), "extensions": {"timeout": timeout}}
    text = None if file is None else _file_text(file)
    is_toml = file is not None and file.lower().endswith(".toml")
    if text is not None and is_toml and not given:
        return {"content": text.encode(), "headers": TOML}
    body = {} if text is None else _object(text, str(file), is_toml=is_toml)
    for name, value in given:
        keys = KEYS.findall(name) if NAME.fullmatch(name) else []
        _set(body, keys, _file_text(value[1:]) if value.startswith("@") else value_of(value), name)
    return {"json": body} if given or text is not None else {}


def _file_text(name: str) -> str:
    try:
        return sys.stdin.read().removeprefix(SIGNATURE) if name == STDIN else read_text(Path(name))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{name} cannot be read: {error}") from error


def _object(text: str, name: str, *, is_toml: bool) -> JsonObject:
    try:
        found = tomllib.loads(text) if is_toml else json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"{name}: not {'TOML' if is_toml else 'JSON'}: {error}") from error
    if not isinstance(found, dict):
        raise InvalidInput(f"{name} must hold a JSON object")
    return found


def _set(body: Any, keys: Sequence[str], value: Any, name: str) -> None:
    """Set a field by the parts of its name: `limits[team_size]` is of an object, `add[]` of a list."""
    try:
        key, *inner = keys
        if not inner:
            body[key] = value
        elif inner == [""]:
            body.setdefault(key, []).append(value)
        else:
            _set(body.setdefault(key, {}), inner, value, name)
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidInput(f"--field {name!r} must be a name, NAME[KEY] of an object or NAME[] of a list") from error


def _all_pages(client: LetheClient, method: str, path: str, params: Sequence[tuple[str, str]]) -> Any:
    """Return the answers to all pages of a list as one. Raises InvalidInput for what has no pages."""
    if method != "GET":
        raise InvalidInput("--paginate goes with GET")
    first, *others = _pages(client, path, params)
    for page in others:
        for name in first if isinstance(first, dict) else ():
            if isinstance(first[name], list):
                first[name] += page[name]
        if isinstance(first, list):
            first += page
    return first if isinstance(first, list) else first | {"has_more": False}


def _pages(client: LetheClient, path: str, params: Sequence[tuple[str, str]]) -> Iterator[Any]:
    """Yield each page: a list, until one is empty or the same again; an object, as long as it says `has_more`."""
    before = None
    for number in range(1, sys.maxsize):
        page = client.request("GET", path, params=[*params, ("page", str(number))]).json()
        if number > 1 and (page in ([], before)):
            return
        yield page
        if isinstance(page, dict) and not page.get("has_more"):
            return
        before = page


def _print(response: httpx.Response) -> None:
    """Print JSON indented, and anything else as it is; a text steers no terminal."""
    kind = response.headers.get("content-type", "").partition(";")[0]
    if not response.content:
        return
    if kind == "application/json":
        print_json(response.json())
    elif not sys.stdout.isatty():
        sys.stdout.buffer.write(response.content)
    elif kind.startswith("text/"):
        console.print(response.text, markup=False, highlight=False, soft_wrap=True)
    else:
        raise InvalidInput(f"the answer is a file of {len(response.content):,} bytes: send it to one with > FILE")
