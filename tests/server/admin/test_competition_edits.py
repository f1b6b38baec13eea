"""PATCH of a competition: several fields at once, and a preview that is what is then done."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from server.competitions import competitions
from server.db import now
from server.models.account import AuditEvent, Role
from server.models.competition import Competition, CompetitionState
from server.models.participation import CompetitionText
from tests.support.instance import Instance, competition_toml

DIGITS = "/api/v1/competitions/digits"
LATER = (now() + timedelta(days=40)).replace(microsecond=0).isoformat()
CHANGES: list[dict[str, Any]] = [
    {"title": "Other digits", "summary": "Fewer", "description": "*Six*"},
    {"closes_at": LATER},
    {"limits": {"submissions_per_day": 1, "team_size": 2}},
    {"participation": {"terms": "Be fair."}, "pages": {"faq": "None."}},
    {"phases": [{"name": "all"}], "late": {"accepted": True}},
    {"title": "All at once", "closes_at": LATER, "limits": {"memory_mib": 999}, "pages": {"rules": "Run."}},
]


def stored(server: Instance) -> list[Any]:
    """Return whatever a change may touch."""
    with server.database.read() as session:
        row = session.scalars(select(Competition).where(Competition.slug == "digits")).one()
        counts = [session.scalar(select(func.count()).select_from(table)) for table in (AuditEvent, CompetitionText)]
        return [row.title, row.summary, row.closes_at, row.state, row.config, row.source, *counts]


def patched(server: Instance, headers: dict[str, str], **body: Any) -> dict[str, Any]:
    answer = server.client.patch(DIGITS, headers=headers, json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("body", CHANGES, ids="-".join)
@pytest.mark.parametrize("state", [CompetitionState.OPEN, CompetitionState.CLOSED])
def test_preview_says_what_is_then_done(both: Instance, body: dict[str, Any], state: CompetitionState) -> None:
    owner, ada = both.account("olga", Role.ORGANISER), both.participant("ada")
    both.competition(organiser=owner, limits={"submissions_per_day": 5})
    olga = both.headers(owner)
    for _ in range(2):
        both.submit(ada)
    if state == CompetitionState.CLOSED:
        both.client.post(f"{DIGITS}/close", headers=olga)
    before = stored(both)
    seen = patched(both, olga, **body, preview=True)
    assert stored(both) == before
    done = patched(both, olga, **body, reason="asked for")
    assert (seen["applied"], done["applied"]) == (False, True)
    affects = ("changed", "over_daily_quota", "over_total_quota", "too_large", "too_many_finals", "unfinished")
    assert {name: seen[name] for name in affects} == {name: done[name] for name in affects}
    assert {name.partition(".")[0] for name in done["changed"]} == set(body)
    assert stored(both) != before
    assert done["state"] == ("open" if "closes_at" in body else state)


def test_draft_is_replaced_as_it_was_previewed(server: Instance) -> None:
    owner = server.account("olga", Role.ORGANISER)
    server.competition(organiser=owner, state=CompetitionState.DRAFT)
    olga, before = server.headers(owner), stored(server)
    text = competition_toml().replace("n_models = 4", "n_models = 6")
    seen = patched(server, olga, file=text, preview=True)
    assert (seen["changed"]["n_models"], stored(server)) == ([4, 6], before)
    assert "splits.seed" not in seen["changed"], "another one is drawn, and nobody is shown it"
    assert patched(server, olga, file=text)["changed"] == seen["changed"]
    assert patched(server, olga, file=text)["changed"] == {}


@pytest.mark.parametrize(
    ("old", "new", "trains"),
    [
        ("n_models = 4", "n_models = 6", True),
        ("[network]", f"[splits]\nseed = 0x{2**100:X}\n[network]", True),
        ("[network]", '[report]\nmetrics = ["umia"]\n[ranking]\nby = ["score", "umia"]\n[network]', False),
    ],
)
def test_prepared_competition_takes_another_file_until_it_opens(server, old, new, trains):
    owner = server.account("olga", Role.ORGANISER)
    competition = server.competition(organiser=owner, state=CompetitionState.READY)
    olga, before = server.headers(owner), stored(server)
    text = competition_toml().replace(old, new)
    assert patched(server, olga, file=text, preview=True)["trains_again"] is trains
    assert stored(server) == before
    done = patched(server, olga, file=text)
    assert (done["state"], done["trains_again"]) == ("draft", trains)
    with server.database.read() as session:
        splits = list(competitions.splits(session, session.get_one(Competition, competition.id)))
        assert {(split.state, split.oracle, split.manifest_sha256) for split in splits} == {("pending", None, None)}


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"title": "New"}, 422, "A reason is needed"),
        ({"reason": "x"}, 422, "Name what is to change: title, summary"),
        ({"file": "", "title": "New"}, 422, "leave out title"),
        ({"n_models": 8, "reason": "x"}, 422, "n_models"),
        ({"title": "New", "limits": {"memory_mib": "much"}, "reason": "x"}, 422, "limits.memory_mib"),
        ({"closes_at": "2001-01-01T00:00:00Z", "title": "New", "reason": "x"}, 422, "must lie in the future"),
        ({"participation": {"confirmed_email": True}, "title": "New", "reason": "x"}, 409, "sends no e-mail"),
        ({"file": competition_toml()}, 409, "can no longer be replaced"),
    ],
)
@pytest.mark.parametrize("preview", [False, True])
def test_refused_change_leaves_everything(server, body, status, said, *, preview):
    owner = server.account("olga", Role.ORGANISER)
    server.competition(organiser=owner)
    olga, before = server.headers(owner), stored(server)
    if preview and "reason" in said:
        pytest.skip("a preview needs none")
    answer = server.client.patch(DIGITS, headers=olga, json={**body, "preview": preview})
    assert answer.status_code == status
    assert said in answer.text
    assert stored(server) == before
