"""A real S3 API server on loopback, which can be told to answer 500 or slowly."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

import boto3
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
BUCKET = "lethe"


@dataclass
class Faults:
    """What the server does wrong.

    fail_next: how many requests are answered with 500. held_from: the number of the first request that gets no answer
    until this is None again.
    """

    fail_next: int = 0
    delay_s: float = 0.0
    requests: int = field(default=0)
    held_from: int | None = None


@dataclass(frozen=True)
class S3Server:
    """A running server, and what a process needs to reach it."""

    endpoint: str
    faults: Faults

    @property
    def url(self) -> str:
        return f"s3://{BUCKET}/instance"

    @property
    def environment(self) -> dict[str, str]:
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": self.endpoint, "LETHE_STORAGE_URL": self.url}


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run a server with one empty bucket."""
    faults = Faults()
    application = _faulty(DomainDispatcherApplication(create_backend_app), faults)
    server = make_server("127.0.0.1", 0, application, threaded=True)
    thread = threading.Thread(target=server.serve_forever, name="s3", daemon=True)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in CREDENTIALS.items():
                patch.setenv(name, value)
            client = boto3.client("s3", endpoint_url=endpoint)
            client.create_bucket(Bucket=BUCKET)
            client.close()
        yield S3Server(endpoint, faults)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _faulty(application: Callable[..., Any], faults: Faults) -> Callable[[WSGIEnvironment, StartResponse], Any]:
    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Any:
        faults.requests += 1
        number = faults.requests
        while faults.held_from is not None and number >= faults.held_from:
            time.sleep(0.02)
        time.sleep(faults.delay_s)
        if faults.fail_next > 0:
            faults.fail_next -= 1
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response("500 Internal Server Error", [("Content-Type", "application/xml"), ("Connection", "close")])
            if environ["REQUEST_METHOD"] == "HEAD":
                return []
            return [b"<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>"]
        return application(environ, start_response)

    return answer
