"""An error says everything once: in its detail, or in the list beside a summary; a full disk is told as such."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.orm.exc import StaleDataError

from lethe.client.api import ApiError
from lethe.competition.file import parse_competition
from lethe.errors import MAX_NAMED, InvalidCompetitionFile
from server.deps import get_database
from server.models.account import Role
from server.models.submission import Submission
from tests.support.instance import GOOD_CODE, Instance, competition_toml, make_zip
from tests.support.web import Visitor

ONE = {"submissions_per_day": "-1"}
SEVERAL = ONE | {"wall_time_s": "-2"}


def refused(server: Instance, limits: dict[str, object]) -> dict[str, Any]:
    toml = {**server.organiser(), "Content-Type": "application/toml"}
    answer = server.client.post("/api/v1/competitions", headers=toml, content=competition_toml(limits=limits))
    assert answer.status_code == 422
    problem: dict[str, Any] = answer.json()
    return problem


def test_one_wrong_value_is_told_by_the_detail(server: Instance) -> None:
    problem = refused(server, ONE)
    (wrong,) = problem["errors"]
    assert problem["detail"] == f"competition file: {wrong['field']}: {wrong['message']} (was -1)"
    assert str(ApiError(422, problem)).count(wrong["message"]) == 1


def test_several_wrong_values_are_told_by_the_list(server: Instance) -> None:
    problem = refused(server, SEVERAL)
    assert problem["detail"] == "competition file: 2 wrong values"
    assert {wrong["field"] for wrong in problem["errors"]} == {"limits.submissions_per_day", "limits.wall_time_s"}
    printed = str(ApiError(422, problem)).splitlines()
    assert [line.count("(was -") for line in printed] == [0, 1, 1]


def test_request_with_one_wrong_value_names_it_in_its_detail(server: Instance) -> None:
    problem = server.client.post("/api/v1/accounts", json={"name": "ada"}).json()
    assert problem["detail"] == f"request: password: {problem['errors'][0]['message']}"


def test_error_of_the_library_tells_all_by_itself() -> None:
    with pytest.raises(InvalidCompetitionFile) as raised:
        parse_competition(competition_toml(limits=SEVERAL), source="x.toml")
    assert str(raised.value).startswith("x.toml:\n  limits.")
    assert str(raised.value).count("(was -") == 2


def test_any_number_of_wrong_values_makes_a_short_answer(server: Instance) -> None:
    wrong = "".join(f"a{number} = 1\n" for number in range(5000))
    headers = server.organiser()
    asked = [
        lambda: server.client.post("/api/v1/competitions", headers=headers, content=competition_toml(extra=wrong)),
        lambda: server.client.post("/api/v1/accounts", json={f"a{number}": 1 for number in range(2000)}),
    ]
    for ask in asked:
        problem = ask().json()
        assert len(problem["errors"]) == MAX_NAMED
        assert re.search(r"[25]0\d\d wrong values, of which the first 100 are named$", problem["detail"])
    with pytest.raises(InvalidCompetitionFile, match=r"and 4900 more$"):
        parse_competition(competition_toml(extra=wrong), source="x.toml")


def fail_with(monkeypatch: pytest.MonkeyPatch, failure: str | Exception) -> None:
    """Have the list of competitions run a statement that the database refuses, or raise an error."""

    def fail(*_args: object, **_values: object) -> None:
        if isinstance(failure, Exception):
            raise failure
        with get_database().write() as session:
            session.execute(text(failure))

    monkeypatch.setattr("server.competitions.competitions.list_visible", fail)


@pytest.mark.parametrize(
    "failure",
    [
        "UPDATE accounts SET name_key = 'same'",
        "INSERT INTO accounts SELECT * FROM accounts",
        StaleDataError("2 rows expected, 1 found"),
    ],
    ids=["unique", "primary key", "stale"],
)
def test_what_somebody_else_was_quicker_with_is_a_conflict(both, failure, monkeypatch, caplog):
    both.participant("ada")
    both.participant("bob")
    fail_with(monkeypatch, failure)
    answer = both.client.get("/api/v1/competitions")
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:lethe:problem:conflict")
    assert "'exc_info': " in caplog.text


@pytest.mark.parametrize(
    "failure",
    [
        "UPDATE accounts SET name = NULL",
        "UPDATE accounts SET role = 'none'",
        "UPDATE api_tokens SET account_id = 'nobody'",
    ],
    ids=["null", "check", "foreign key"],
)
def test_other_broken_constraints_are_our_own_fault(both, failure, monkeypatch, caplog):
    both.participant()
    fail_with(monkeypatch, failure)
    answer = both.client.get("/api/v1/competitions")
    assert (answer.status_code, answer.json()["type"]) == (500, "urn:lethe:problem:server-error")
    assert "'exc_info': " in caplog.text


FULL = Path("/dev/full")  # takes no byte


@pytest.fixture
def _full_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_full(**_options: object) -> Any:
        return FULL.open("w+b", buffering=0)

    monkeypatch.setattr("starlette.formparsers.SpooledTemporaryFile", open_full)
    monkeypatch.setattr("server.downloads.TemporaryFile", open_full)


@pytest.mark.usefixtures("_full_temporary_folder")
def test_full_temporary_folder_is_told(server: Instance) -> None:
    root = server.account("root-of-all", Role.ADMINISTRATOR)
    server.competition(organiser=root)
    headers = server.headers(root)
    visitor = Visitor(server)
    visitor.log_in("root-of-all")
    archive = {"file": ("a.zip", make_zip({"submission.py": GOOD_CODE}))}
    post, api = server.client.post, "/api/v1/competitions/digits"
    for ask in (
        partial(server.submit, headers),
        partial(post, "/api/v1/datasets", headers=headers, files=archive, data={"name": "d"}),
        partial(visitor.post, "/competitions/digits/submit", files=archive),
        partial(server.client.get, f"{api}/exports/audit", headers=headers),
    ):
        answer = ask()
        assert (answer.status_code, "disk of the server is full" in answer.text) == (503, True), ask
    with server.database.read() as session:
        assert session.scalar(select(func.count()).select_from(Submission)) == 0
