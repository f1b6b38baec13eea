"""Values at the ends of what can be written are refused with a sentence, never answered with a fault."""

from typing import Any

import pytest

from server.models.account import Role
from tests.support.instance import Instance, competition_toml

ENDS = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z")


@pytest.fixture
def headers(both: Instance) -> dict[str, str]:
    root = both.account("root-of-all", Role.ADMINISTRATOR)
    both.competition(organiser=root)
    return both.headers(root)


@pytest.mark.parametrize("moment", ENDS)
def test_dates_at_the_ends_of_the_calendar_are_refused(both: Instance, headers: dict[str, str], moment: str) -> None:
    def status(method: str, path: str, **sent: Any) -> int:
        return both.client.request(method, f"/api/v1{path}", headers=headers, **sent).status_code

    for name in ("since", "until"):
        assert status("GET", "/competitions/digits/audit", params={name: moment}) == 422
        assert status("GET", "/admin/audit", params={name: moment}) == 422
    extension = {"closes_at": moment, "reason": "late"}
    assert status("PATCH", "/competitions/digits", json=extension) == 422
    for name in ("opens_at", "closes_at", "merge_deadline"):
        text = competition_toml("other", extra=f"merge_deadline = {moment}\n" if name == "merge_deadline" else "")
        lines = [f"{name} = {moment}" if line.startswith(f"{name} =") else line for line in text.splitlines()]
        assert status("POST", "/competitions", content="\n".join(lines)) == 422


def test_numbers_that_no_json_has_are_refused(both: Instance, headers: dict[str, str]) -> None:
    text = competition_toml("other", limits={"wall_time_s": "inf"})
    assert both.client.post("/api/v1/competitions", headers=headers, content=text).status_code == 422


@pytest.mark.parametrize(
    "url",
    [
        "http://[",
        "https://[::1",
        "https://host:99999/",
        "https://host:x/",
        "https://a\x00b/",
        "https://" + "a" * 70 + ".org/",
        "https://\u2100.org/",
        "https://a b/",
        "https://ho\rst/",
    ],
)
def test_malformed_webhook_address_is_refused(both: Instance, headers: dict[str, str], url: str) -> None:
    body = {"url": url, "events": ["submission.scored"]}
    answer = both.client.post("/api/v1/competitions/digits/webhooks", headers=headers, json=body)
    assert answer.status_code == 422
