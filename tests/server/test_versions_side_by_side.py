"""What the next version stores, read and changed by this one; and what one program cannot read hides nothing else."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import select, text

from lethe.competition.file import CompetitionFile
from lethe.competition.section import SCHEMA_VERSION, as_stored, read_stored
from lethe.evaluation.manifest import Manifest
from lethe.runtime.error_classes import ErrorClass
from server.competitions import stored_file
from server.config import get_settings
from server.models.account import Role
from server.models.competition import Competition
from server.models.submission import Fault, Submission
from server.models.worker import Worker, WorkerFacts
from tests.lethe.conftest import competition
from tests.support.instance import Instance
from worker.transport import DatabaseTransport

API = "/api/v1/competitions"
FACTS = WorkerFacts("host-1", "cpu", 65_536, {})


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """What a process found out is the process's own; here all share one."""
    stored_file.unreadable.clear()
    yield
    stored_file.unreadable.clear()


def by_the_next_version(server: Instance, slug: str, **changed: Any) -> None:
    """Store a competition as the next version would: with keys that this one does not know."""
    with server.database.write() as session:
        row = session.scalars(select(Competition).where(Competition.slug == slug)).one()
        config = {**row.config, "of_the_next": {"a": 1}}
        config["limits"] = {**config["limits"], "energy_wh": 3}
        config["board"] = {**config["board"], **changed.pop("board", {})}
        row.config = config | changed


def claim(server: Instance) -> str | None:
    settings = get_settings().model_copy(update={"sandbox_backend": "plain"})
    found = DatabaseTransport(server.database, server.storage, settings, FACTS).claim()
    return found.competition.slug if found else None


def two_competitions(server: Instance) -> dict[str, str]:
    """Return the organiser's headers. A submission waits in each; that of the first is served first."""
    olga = server.account("olga", Role.ORGANISER)
    for slug in ("digits", "letters"):
        server.competition(slug, organiser=olga)
        assert server.submit(server.participant(f"of-{slug}"), slug=slug).status_code == 201
    return server.headers(olga)


def refusals(server: Instance) -> list[str]:
    with server.database.read() as session:
        return list(session.get_one(Worker, FACTS.name).refusals.values())


def test_unknown_keys_are_ignored_and_kept(both: Instance) -> None:
    olga = two_competitions(both)
    by_the_next_version(both, "digits")
    assert both.client.get("/").status_code == 200
    assert both.client.get(f"{API}/digits/leaderboard").status_code == 200
    assert claim(both) == "digits"
    body = {"limits": {"submissions_per_day": 7}, "reason": "more days"}
    assert both.client.patch(f"{API}/digits", headers=olga, json=body).status_code == 200
    body = {"pages": {"rules": "Be kind."}, "reason": "rules"}
    changed = both.client.patch(f"{API}/digits", headers=olga, json=body)
    assert changed.status_code == 200, changed.text
    with both.database.read() as session:
        config = session.scalars(select(Competition.config).where(Competition.slug == "digits")).one()
    assert (config["limits"]["submissions_per_day"], config["limits"]["energy_wh"]) == (7, 3)
    assert (config["of_the_next"], config["schema_version"]) == ({"a": 1}, SCHEMA_VERSION)


def test_person_may_not_write_an_unknown_key(server: Instance) -> None:
    olga = two_competitions(server)
    body = {"limits": {"energy_wh": 3}, "reason": "why not"}
    assert server.client.patch(f"{API}/digits", headers=olga, json=body).status_code == 422


def test_worker_leaves_what_a_newer_version_computes_otherwise(both: Instance) -> None:
    two_competitions(both)
    by_the_next_version(both, "digits", schema_version=SCHEMA_VERSION + 1)
    assert both.client.get("/").status_code == 200
    assert claim(both) == "letters"
    assert refusals(both) == ["digits was made by a newer version of Lethe than this worker's: update the worker"] * 2


def test_unreadable_competition_hides_and_holds_up_no_other(both: Instance) -> None:
    olga = two_competitions(both)
    by_the_next_version(both, "digits", board={"mode": "of-the-next"})
    assert [each["slug"] for each in both.client.get(API, headers=olga).json()] == ["letters"]
    page = both.client.get("/")
    assert (page.status_code, "letters" in page.text) == (200, True)
    shown = both.client.get(f"{API}/digits")
    assert shown.status_code == 503
    assert "another version of Lethe" in shown.json()["detail"]
    assert both.tick() == 0
    assert claim(both) == "letters"
    assert claim(both) is None
    assert "another version of Lethe" in refusals(both)[0]


def test_error_class_of_another_version_is_shown_as_it_stands(both: Instance) -> None:
    both.competition()
    ada = both.participant()
    submission = both.submit(ada).json()["id"]
    both.fail(submission, Fault.PARTICIPANT)
    with both.database.write() as session:
        session.execute(text("UPDATE submissions SET error_class = 'cpu-time'"))
    with both.database.read() as session:
        stored = session.scalars(select(Submission)).one().error_class
    assert (stored, stored in list(ErrorClass)) == ("cpu-time", False)
    shown = both.client.get(f"/api/v1/submissions/{submission}", headers=ada).json()["failure"]
    assert shown["error_class"] == "cpu-time"


def test_files_of_other_versions_are_read() -> None:
    stored = as_stored(competition()) | {"of_the_next": 1}
    assert read_stored(CompetitionFile, stored) == competition()
    del stored["schema_version"]
    assert read_stored(CompetitionFile, stored) == competition()
    assert as_stored(competition(), before=stored)["of_the_next"] == 1
    assert Manifest.model_config.get("extra") is None
