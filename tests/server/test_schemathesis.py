"""Whatever is sent to the API, it answers as its OpenAPI document says, and never with a fault of its own."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import Failure
from schemathesis.specs.openapi.checks import status_code_conformance

from server.main import create_app
from server.models.account import Role
from tests.support.instance import Instance

CHECKS = [not_a_server_error, status_code_conformance]
LOCAL = ("/api/v1/tokens", "/api/v1/me/password")  # would log the caller out, or spend seconds on hashing


@schemathesis.serializer("application/toml")
def _toml(_context: schemathesis.SerializationContext, value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")


def send_to_every_operation(server: Instance, *, examples: int) -> None:
    """Send made-up requests, as an organiser and as nobody, to each operation of the document."""
    owner = server.account("olga", Role.ORGANISER)
    slug = server.competition(organiser=owner).slug
    headers = server.headers(owner)
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
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(), known=st.booleans(), signed=st.booleans())
        def send(case: schemathesis.Case, known: bool, signed: bool) -> None:
            if known and "slug" in (case.path_parameters or {}):
                case.path_parameters["slug"] = slug
            case.call_and_validate(headers=headers if signed else None, checks=CHECKS, app=server.client.app)

        try:
            send()
        except (BaseExceptionGroup, Failure) as failure:
            wrong += [f"{operation.label}: {one}" for one in getattr(failure, "exceptions", (failure,))]
    assert wrong == [], "\n".join(wrong)


def test_made_up_requests_get_documented_answers_and_no_fault(server: Instance) -> None:
    send_to_every_operation(server, examples=4)


@pytest.mark.slow
def test_many_made_up_requests_get_documented_answers_and_no_fault(server: Instance) -> None:
    send_to_every_operation(server, examples=60)
