"""A typed client of the HTTP API, for programs and notebooks.

with LetheClient("http://127.0.0.1:8000", token="lethe_…") as lethe:
    submission = lethe.submit("digits", Path("unlearning.py"))
    done = lethe.wait(submission["id"])
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from datetime import time as time_of_day
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

import httpx

from lethe.errors import AppError, HostFault, InvalidInput

JsonObject = dict[str, Any]
ENDS = frozenset({"scored", "failed", "cancelled"})
TOML = {"Content-Type": "application/toml"}
JSON = {"Content-Type": "application/json"}
UPLOAD_TIMEOUT_S = 1800.0  # a dataset is read as a whole before the answer
WAIT_RETRIES = 30  # lost connections in a row that `wait` lives through


class ApiError(AppError):
    """The server's answer was a problem document. `problem` holds all of it."""

    title = "The server refused"

    def __init__(self, status: int, problem: JsonObject) -> None:
        super().__init__(_problem_text(status, problem))
        self.http_status = status
        self.problem = problem


class NotLoggedIn(AppError):
    """There is no token, or the server does not take it."""

    slug, title = "not-authenticated", "Log in first"
    http_status = 401


class Unreachable(HostFault):
    """No answer came: the address is wrong, the server is down, or the network is."""

    title = "The server cannot be reached"


class LetheClient:
    """Calls `/api/v1` of one server. Close it, or use it as a context manager."""

    def __init__(self, url: str, *, token: str | None = None, timeout_s: float = 30.0) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.url = url.rstrip("/")
        self._http = httpx.Client(base_url=f"{self.url}/api/v1", headers=headers, timeout=timeout_s)

    # --- accounts ---

    def register(self, name: str, password: str, *, email: str | None = None) -> JsonObject:
        return self._object("POST", "/accounts", json={"name": name, "password": password, "email": email})

    def log_in(self, name: str, password: str, *, label: str = "command line", **wanted: object) -> str:
        """Return a new API token and use it from now on.

        wanted: what else the token's request says: `code` of a second factor, `scope`, `expires_in_days`.
        """
        asked = {"name": name, "password": password, "label": label} | wanted
        token = self._object("POST", "/tokens", json=asked)["token"]
        self._http.headers["Authorization"] = f"Bearer {token}"
        return str(token)

    def me(self) -> JsonObject:
        return self._object("GET", "/me")

    def tokens(self) -> list[JsonObject]:
        return self._list("GET", "/tokens")

    def revoke_token(self, token_id: str) -> None:
        self._call("DELETE", f"/tokens/{token_id}")

    # --- competitions ---

    def competitions(self) -> list[JsonObject]:
        """Return the competitions that the caller may see, the latest to open first."""
        return self._list("GET", "/competitions")

    def competition(self, slug: str) -> JsonObject:
        return self._object("GET", f"/competitions/{slug}")

    def quota(self, slug: str) -> JsonObject:
        return self._object("GET", f"/competitions/{slug}/quota")

    def leaderboard(
        self, slug: str, *, board: str | None = None, phase: str | None = None, task: str | None = None
    ) -> JsonObject:
        """Return a board: the public one, or with board="private" the final one once it is revealed.

        phase: a phase's own public board; "late": of submissions after the close. task: the name of one; without it,
        where a competition has tasks, their combined board.
        """
        found: JsonObject = self.get(f"/competitions/{slug}/leaderboard", board=board, phase=phase, task=task)
        return found

    def starter_kit(self, slug: str, *, task: str = "") -> bytes:
        """Return the starter kit of the competition, or of a task of it, a zip archive."""
        return self._bytes(f"/competitions/{slug}/starter-kit" + (f"?{urlencode({'task': task})}" if task else ""))

    # --- teams ---

    def team(self, slug: str) -> JsonObject:
        return self._object("GET", f"/competitions/{slug}/team")

    def create_team(self, slug: str, name: str) -> JsonObject:
        return self._object("POST", f"/competitions/{slug}/teams", json={"name": name})

    # --- submissions ---

    def submit(self, slug: str, path: Path, *, message: str = "", tasks: Sequence[str] = ()) -> JsonObject:
        """Upload a file. Raises ApiError naming what is wrong with it, and where.

        tasks: names of those that it is for; none: all that the competition has.
        """
        with path.open("rb") as file:
            return self._object(
                "POST",
                f"/competitions/{slug}/submissions",
                files={"file": (path.name, file, "application/octet-stream")},
                data={"message": message} | ({"tasks": ",".join(tasks)} if tasks else {}),
            )

    def submissions(self, slug: str) -> list[JsonObject]:
        """Return the caller's team's submissions, newest first."""
        return self._list("GET", f"/competitions/{slug}/submissions")

    def submission(self, submission_id: str) -> JsonObject:
        return self._object("GET", f"/submissions/{submission_id}")

    def wait(
        self, submission_id: str, *, on_change: Callable[[JsonObject], None] | None = None, every_s: float = 1.0
    ) -> JsonObject:
        """Return the submission once it is scored, failed or cancelled. Lives through a restart of the server."""
        for submission in self.watch(submission_id, every_s=every_s):
            if on_change:
                on_change(submission)
            if submission["stage"] in ENDS:
                return submission
        raise Unreachable(f"{self.url} stopped answering while submission {submission_id} was waited for")

    def watch(self, submission_id: str, *, every_s: float = 1.0) -> Iterator[JsonObject]:
        """Yield the submission every `every_s` seconds, until too many questions in a row went unanswered."""
        lost = 0
        while lost < WAIT_RETRIES:
            try:
                submission = self.submission(submission_id)
            except Unreachable:
                lost += 1
            else:
                lost = 0
                yield submission
            time.sleep(every_s)

    def cancel(self, submission_id: str) -> JsonObject:
        return self._object("POST", f"/submissions/{submission_id}/cancel")

    def select(self, submission_id: str, *, selected: bool = True) -> JsonObject:
        """Choose a submission for the private board, or take the choice back."""
        return self._object("PUT" if selected else "DELETE", f"/submissions/{submission_id}/selection")

    def publish(self, submission_id: str, *, allowed: bool = True) -> JsonObject:
        """Let a submission's code be published with the results after the end, or no longer."""
        return self._object("PUT" if allowed else "DELETE", f"/submissions/{submission_id}/publication")

    def code(self, submission_id: str) -> bytes:
        """Return the file as the server received it."""
        return self._bytes(f"/submissions/{submission_id}/code")

    def log(self, submission_id: str) -> str:
        """Return what the runs on the public sample printed."""
        return self._bytes(f"/submissions/{submission_id}/log").decode(errors="replace")

    def sample_answers(self, submission_id: str) -> JsonObject:
        """Return the public sample's forget questions with the answers of three language models."""
        return self._object("GET", f"/submissions/{submission_id}/sample-answers")

    # --- for organisers ---

    def create_competition(self, toml: str) -> JsonObject:
        return self._object("POST", "/competitions", content=toml.encode(), headers=TOML)

    def replace_competition_file(self, slug: str, toml: str) -> JsonObject:
        """Replace the file of a draft, or of a competition whose preparation has failed."""
        return self._object("PATCH", f"/competitions/{slug}", json={"file": toml})

    def upload_dataset(self, name: str, archive: Path) -> JsonObject:
        """Upload a zip of plain files, which competition files use as root = "upload:NAME"."""
        with archive.open("rb") as file:
            return self._object(
                "POST",
                "/datasets",
                files={"file": (archive.name, file, "application/zip")},
                data={"name": name},
                extensions={"timeout": httpx.Timeout(UPLOAD_TIMEOUT_S).as_dict()},
            )

    def prepare(self, slug: str, *, any_device: bool = False, measure: bool = False) -> JsonObject:
        asked = {"any_device": any_device} | ({"measure": True} if measure else {})
        return self._object("POST", f"/competitions/{slug}/prepare", params=asked)

    def preparation(self, slug: str) -> JsonObject:
        """Return the competition as its organisers see it, with the state of both splits."""
        return self._object("GET", f"/competitions/{slug}/preparation")

    def open(self, slug: str, *, reason: str = "") -> JsonObject:
        return self.act(slug, "open", {"reason": reason} if reason else None)

    def act(self, slug: str, action: str, body: Mapping[str, Any] | None = None) -> JsonObject:
        """Carry out one of the organiser's acts on a competition: open, close, reveal and so on."""
        return self._object("POST", f"/competitions/{slug}/{action}", json=dict(body) if body else None)

    def request(self, method: str, path: str, *, json: Any = None, **request: Any) -> httpx.Response:
        """Return the answer to any request below /api/v1. json: the body; request: what httpx takes beside it."""
        if json is not None:
            request |= {"content": _json_body(json), "headers": JSON}
        try:
            response = self._http.request(method, path, **request)
        except httpx.TransportError as error:
            raise self._unreachable(error) from error
        if response.is_error:
            raise ApiError(response.status_code, _problem(response))
        return response

    def get(self, path: str, **params: Any) -> Any:
        """Return the answer to a GET below /api/v1, for routes without their own method; empty values are not sent."""
        return self._call("GET", path, params=_filled(params))

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the answer to a POST below /api/v1, for routes without their own method."""
        return self._call("POST", path, json=dict(body) if body is not None else None)

    def put(self, path: str, body: Mapping[str, Any]) -> Any:
        """Return the answer to a PUT below /api/v1, for routes without their own method."""
        return self._call("PUT", path, json=dict(body))

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Return the answer to a PATCH below /api/v1, for routes without their own method."""
        return self._call("PATCH", path, json=dict(body))

    def delete(self, path: str) -> None:
        """Send a DELETE below /api/v1, for routes without their own method."""
        self._call("DELETE", path)

    def download(self, path: str, into: Path, **params: Any) -> Path:
        """Stream what a GET below /api/v1 answers into a file; a download that breaks leaves none."""
        part = into.with_name(f".{into.name}.part")
        try:
            with self._http.stream("GET", path, params=_filled(params)) as response:
                if response.is_error:
                    response.read()
                    raise ApiError(response.status_code, _problem(response))
                with part.open("wb") as file:
                    for chunk in response.iter_bytes():
                        file.write(chunk)
            return part.replace(into)
        except httpx.TransportError as error:
            raise self._unreachable(error) from error
        finally:
            part.unlink(missing_ok=True)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _object(self, method: str, path: str, **request: Any) -> JsonObject:
        body: JsonObject = self._call(method, path, **request)
        return body

    def _list(self, method: str, path: str, **request: Any) -> list[JsonObject]:
        body: list[JsonObject] = self._call(method, path, **request)
        return body

    def _bytes(self, path: str) -> bytes:
        return self.request("GET", path).content

    def _call(self, method: str, path: str, **request: Any) -> Any:
        response = self.request(method, path, **request)
        return response.json() if response.content else None

    def _unreachable(self, error: httpx.TransportError) -> Unreachable:
        return Unreachable(
            f"{self.url} did not answer ({error or type(error).__name__}). Is the address right, and the server up?"
        )


def _json_body(body: Any) -> bytes:
    """Return a body as JSON, TOML's dates and times as ISO 8601. Raises InvalidInput for inf and nan."""
    try:
        return json.dumps(body, default=_iso_8601, allow_nan=False).encode()
    except ValueError as error:
        raise InvalidInput("inf and nan cannot be sent: give a finite number") from error


def _iso_8601(value: object) -> str:
    if isinstance(value, date | time_of_day):  # a datetime is a date
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _filled(params: Mapping[str, Any]) -> dict[str, Any] | None:
    return {name: value for name, value in params.items() if value is not None and value != ""} or None


def _problem(response: httpx.Response) -> JsonObject:
    try:
        body = response.json()
    except ValueError:
        body = None
    return body if isinstance(body, dict) else {"title": response.reason_phrase, "detail": response.text[:500]}


def _problem_text(status: int, problem: JsonObject) -> str:
    lines = [f"{problem.get('title', 'error')} ({status}): {problem.get('detail', '')}"]
    for item in problem.get("errors") or []:
        if str(item.get("message")) not in lines[0]:
            was = f" (was {item['value']})" if item.get("value") else ""
            lines.append(f"  {item.get('field')}: {item.get('message')}{was}")
    return "\n".join(lines)
