"""Phases follow one another between the opening and the close, and some of them count."""

from typing import Any

import pytest
from pydantic import ValidationError

from tests.lethe.conftest import competition

TENTH, TWENTIETH = "2026-01-10T00:00:00Z", "2026-01-20T00:00:00Z"


def phases(*starts: str | None, **changes: Any) -> list[dict[str, Any]]:
    return [{"name": f"p{i}", "begins_at": start, **changes} for i, start in enumerate(starts)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"phases": [{"name": "a"}, {"name": "a", "begins_at": TENTH}]}, "the name 'a' is taken twice"),
        ({"phases": [{"name": "late"}]}, "the name 'late' is taken twice, or by submissions after the close"),
        ({"phases": phases(None, TENTH, counts=False)}, "in none of them submissions count"),
        ({"phases": phases(TENTH)}, "'p0' is the first and begins at opens_at"),
        ({"phases": phases(None, TWENTIETH, TENTH)}, "'p2' must begin after the phase before it (2026-01-20"),
        ({"phases": phases(None, None)}, "'p1' must begin after the phase before it (2026-01-01"),
        ({"phases": phases(None, "2026-02-01T00:00:00Z")}, "before closes_at (2026-02-01"),
        ({"late": {"accepted": True, "until": TENTH}}, "late.until (2026-01-10"),
    ],
)
def test_phases_that_cannot_be_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        competition(**changes)
    assert said in str(refused.value)


def test_phases_in_order_are_taken() -> None:
    assert [phase.name for phase in competition(phases=phases(None, TENTH, TWENTIETH)).phases] == ["p0", "p1", "p2"]
