"""Whatever is sent to the API, it answers as its OpenAPI document says, and never with its own fault."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import Failure
from schemathesis.specs.openapi.checks import status_code_conformance

from server.main import create_app
from server.models.account import Role
from tests.server.workers.conftest import Hosted, hosted_on
from tests.support.instance import Instance

CHECKS = [not_a_server_error, status_code_conformance]
WORKERS = "/api/v1/worker/"
LOCAL = ("/api/v1/tokens", "/api/v1/me/password")  # would log the caller out, or spend seconds on hashing


@schemathesis.serializer("application/toml")
def _toml(_context: schemathesis.SerializationContext, value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")


def worker_with_a_shard(hosted: Hosted) -> tuple[dict[str, str], dict[str, Any]]:
    """Return what a remote worker calls with, and the path of the shard that it holds."""
    hosted.server.submit(hosted.server.participant("pia"))
    worker = hosted.worker()
    held = worker.claim() or {}
    path = {"worker": worker.name, "shard_id": held["shard_id"], "attempt": held["attempt"]}
    return {"Authorization": f"Bearer {worker.token}"}, path


def send_to_every_operation(server: Instance, *, examples: int) -> None:
    """Send made-up requests, as organiser, administrator, worker and nobody, to each operation of the document."""
    hosted = hosted_on(server)
    callers = [hosted.organiser, server.headers(server.account("root-of-all", Role.ADMINISTRATOR)), None]
    slug = hosted.competition.slug
    of_worker, shard = worker_with_a_shard(hosted)
    at_hand = {"slug": slug} | shard
    schema = schemathesis.openapi.from_dict(create_app().openapi())
    schema.app = server.client.app
    wrong: list[str] = []
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path.startswith(LOCAL):
            continue

        @settings(
            max_examples=examples,
            deadline=None,
            derandomize=settings.default.derandomize,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(), known=st.booleans(), caller=st.sampled_from(callers))
        def send(case: schemathesis.Case, known: bool, caller: dict[str, str] | None) -> None:
            headers = of_worker if caller and case.operation.path.startswith(WORKERS) else caller
            if known and case.path_parameters:
                case.path_parameters |= {name: at_hand[name] for name in at_hand.keys() & case.path_parameters}
            case.call_and_validate(headers=headers, checks=CHECKS, app=server.client.app)

        try:
            send()
        except (BaseExceptionGroup, Failure) as failure:
            wrong += [f"{operation.label}: {one}" for one in getattr(failure, "exceptions", (failure,))]
    assert wrong == [], "\n".join(wrong)


@pytest.mark.slow
def test_made_up_requests_get_documented_answers_and_no_fault(server: Instance) -> None:
    send_to_every_operation(server, examples=12 if settings.default.derandomize else 60)
