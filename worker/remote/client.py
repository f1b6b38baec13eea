"""The HTTP calls of a remote worker. Each may be sent again, and is while the network or the server is away."""

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx
import structlog
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from lethe.errors import AppError, HostFault
from server.evaluations.claimed_shard import ClaimedShard
from server.models.worker import WorkerFacts

log = structlog.get_logger()
T = TypeVar("T")
JsonObject = dict[str, Any]
RETRY_FOR_S = 60.0  # how long a call is tried again
FIRST_PAUSE_S, MAX_DELAY_S = 0.2, 5.0
MAX_DETAIL_CHARS = 500  # characters, as the server takes them
RETRYABLE_STATUS = frozenset({429, 500, 502, 503, 504})
SHARD = TypeAdapter(ClaimedShard)


class TokenRefused(AppError):
    title = "The server does not take this worker token"


class WorkerRefused(AppError):
    title = "The server refuses this worker"


class NotHeld(HostFault):
    """The server knows no such worker, or this attempt no longer holds its shard."""

    title = "The server does not know of this"


class ServerUnreachable(HostFault):
    title = "The server cannot be reached"


class WorkerApi:
    """Calls `/api/v1/worker/{name}` of one server."""

    def __init__(self, url: str, *, token: str, name: str, timeout_s: float = 30.0) -> None:
        self.url = url.rstrip("/")
        self._http = httpx.Client(
            base_url=f"{self.url}/api/v1/worker/{name}",
            headers={"Authorization": f"Bearer {token}"},
            timeout=timeout_s,
            follow_redirects=True,  # to the storage's own address; httpx keeps the token from other hosts
        )

    def register(self, facts: WorkerFacts) -> JsonObject:
        """Register this worker. Return the terms. Raises WorkerRefused with the reasons."""
        body = {"device": facts.device, "memory_mib": facts.memory_mib, "versions": facts.versions}
        terms: JsonObject = self._call("PUT", "", json=body).json()
        return terms

    def claim(self) -> ClaimedShard | None:
        """Return a shard to run, or None."""
        claimed = self._call("POST", "/claim", within_s=0.0).json()["shard"]
        return None if claimed is None else SHARD.validate_python(claimed, extra="ignore")

    def set_state(self, state: str, detail: str = "") -> None:
        self._call("PUT", "/state", json={"state": state, "detail": detail[:MAX_DETAIL_CHARS]}, within_s=0.0)

    def step(
        self,
        shard: ClaimedShard,
        method: str,
        step: str,
        *,
        body: JsonObject | None = None,
        within_s: float = RETRY_FOR_S,
    ) -> bool:
        """Take a step with a shard. Return whether it counts."""
        json = None if body is None else to_jsonable_python(body)
        response = self._call(method, f"{_path(shard)}/{step}", json=json, within_s=within_s)
        return bool(response.json()["held"]) if response.content else True

    def send_result(self, shard: ClaimedShard, data: bytes) -> bool:
        """Send a shard's outputs, which closes it. Return whether they count."""
        headers = {"Content-Type": "application/octet-stream"}
        return bool(self._call("PUT", f"{_path(shard)}/result", content=data, headers=headers).json()["held"])

    def send_weights(self, shard: ClaimedShard, data: bytes) -> None:
        """Send the weights that are kept of a shard's first runs, before the outputs that name them."""
        self._call("PUT", f"{_path(shard)}/weights", content=data, headers={"Content-Type": "application/octet-stream"})

    def file(self, shard: ClaimedShard, sha256: str) -> bytes:
        """Return a file of the shard. Its hash is the caller's to compare."""
        return self._call("GET", f"{_path(shard)}/files/{sha256}").content

    def download(self, shard: ClaimedShard, sha256: str, path: Path) -> None:
        """Write a file of the shard to this host's disk. Its hash is the caller's to compare."""

        def attempt() -> None:
            with self._http.stream("GET", f"{_path(shard)}/files/{sha256}") as response:
                if response.is_error:
                    response.read()
                    raise _Answered(response)
                with path.open("wb") as file:
                    for chunk in response.iter_bytes():
                        file.write(chunk)

        self._retrying(attempt, within_s=RETRY_FOR_S)

    def close(self) -> None:
        self._http.close()

    def _call(self, method: str, path: str, *, within_s: float = RETRY_FOR_S, **request: Any) -> httpx.Response:
        def attempt() -> httpx.Response:
            response = self._http.request(method, path, **request)
            if response.is_error:
                raise _Answered(response)
            return response

        return self._retrying(attempt, within_s=within_s)

    def _retrying(self, attempt: Callable[[], T], *, within_s: float) -> T:
        deadline, pause_s = time.monotonic() + within_s, FIRST_PAUSE_S
        while True:
            try:
                return attempt()
            except _Answered as answered:
                if answered.response.status_code not in RETRYABLE_STATUS:
                    raise _refusal(answered.response) from None
                error = f"answered {answered.response.status_code}: {_detail(answered.response)}"
            except httpx.TransportError as failure:
                error = f"did not answer ({failure or type(failure).__name__})"
            if time.monotonic() + pause_s > deadline:
                raise ServerUnreachable(f"{self.url} {error}")
            log.warning("call tried again", server=self.url, error=error, pause_s=round(pause_s, 1))
            time.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 (spreads retries)
            pause_s = min(2 * pause_s, MAX_DELAY_S)


class _Answered(Exception):
    """The server's answer was an error."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__(response.status_code)
        self.response = response


def _path(shard: ClaimedShard) -> str:
    return f"/shards/{shard.shard_id}/{shard.attempt}"


def _refusal(response: httpx.Response) -> AppError:
    detail = _detail(response)
    if response.status_code in (401, 403):
        return TokenRefused(detail)
    if response.status_code == 409:
        return WorkerRefused(detail)
    return NotHeld(detail) if response.status_code == 404 else HostFault(f"the server refused: {detail}")


def _detail(response: httpx.Response) -> str:
    try:
        return str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return response.text[:300] or response.reason_phrase
