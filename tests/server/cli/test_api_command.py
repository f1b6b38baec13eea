"""`lethe api`: requests with the stored log-in, over the API."""

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from server.models.account import Account, Role
from tests.server.cli.conftest import Run, answer, told, use
from tests.support.instance import GOOD_CODE, Instance, make_zip

DIGITS = "/competitions/digits"
WHY = ("-f", "reason=two participants asked")


@pytest.fixture
def olga(server: Instance, monkeypatch: pytest.MonkeyPatch) -> Account:
    """Log an organiser in, whose competition `digits` is open."""
    account = use(server, monkeypatch, "olga", Role.ORGANISER)
    server.competition(organiser=account)
    return account


def test_get_prints_json_with_fields_in_the_query(server: Instance, lethe: Run, olga: Account) -> None:
    server.submit(server.participant("ada"))
    assert len(answer(lethe("api", "get", f"{DIGITS}/all-submissions"))) == 1
    assert answer(lethe("api", "GET", f"/api/v1{DIGITS}/all-submissions?text=", "-f", "stage=failed")) == []


@pytest.mark.usefixtures("olga")
def test_body_is_of_fields_and_files(server: Instance, lethe: Run) -> None:
    Path("news.md").write_text("The *end* moved.")
    made = answer(lethe("api", "POST", f"{DIGITS}/announcements", "-f", "title=News", "-f", "text=@news.md"))
    assert (made["title"], made["text"]) == ("News", "The *end* moved.")
    piped = lethe("api", "POST", f"{DIGITS}/announcements", "-F", "-", typed='{"title": "News", "text": "more"}')
    assert answer(piped)["text"] == "more"
    asked = ("api", "PATCH", DIGITS, "-f", "limits[submissions_per_day]=1", "-f", "limits[submissions_total]=null")
    assert answer(lethe(*asked, *WHY))["changed"] == {"limits.submissions_per_day": [5, 1]}
    assert answer(lethe("api", "GET", DIGITS))["limits"]["submissions_per_day"] == 1


@pytest.mark.usefixtures("olga")
def test_toml_with_dates_is_sent_as_json_beside_fields(server: Instance, lethe: Run) -> None:
    closes = datetime.fromisoformat(answer(lethe("api", "GET", DIGITS))["closes_at"])
    begins, until = closes - timedelta(hours=6), closes + timedelta(days=9)
    Path("settings.toml").write_text(
        f"[late]\naccepted = true\nuntil = {until.isoformat()}\n"
        f'[[phases]]\nname = "practice"\n[[phases]]\nname = "final"\nbegins_at = {begins.isoformat()}\n'
    )
    answer(lethe("api", "PATCH", DIGITS, "-F", "settings.toml", *WHY))
    shown = answer(lethe("api", "GET", DIGITS))
    assert [datetime.fromisoformat(phase["begins_at"]) for phase in shown["phases"][1:]] == [begins]
    assert datetime.fromisoformat(shown["late"]["until"]) == until


@pytest.mark.parametrize("written", ["2030-03-01", "2030-03-01T12:00:00", "12:00:00"])
@pytest.mark.usefixtures("olga")
def test_date_without_zone_is_named(lethe: Run, written: str) -> None:
    Path("settings.toml").write_text(f"[late]\naccepted = true\nuntil = {written}\n")
    assert "until" in told(lethe("api", "PATCH", DIGITS, "-F", "settings.toml", *WHY))
    Path("settings.toml").write_text("[late]\naccepted = true\nsubmissions_per_day = inf\n")
    assert "finite" in told(lethe("api", "PATCH", DIGITS, "-F", "settings.toml", *WHY))


@pytest.mark.usefixtures("olga")
def test_competition_file_is_sent_as_it_is(lethe: Run) -> None:
    Path("other.toml").write_text('slug = "other"\n')
    assert "title" in told(lethe("api", "POST", "/competitions", "-F", "other.toml"))


@pytest.mark.usefixtures("olga")
def test_upload_is_a_form(lethe: Run) -> None:
    Path("faces.zip").write_bytes(make_zip({"images.npy": b"1", "labels.npy": b"2"}))
    upload = ("api", "POST", "/datasets", "-f", "name=faces", "--upload", "faces.zip")
    assert answer(lethe(*upload))["files"] == 2
    assert "is taken" in told(lethe(*upload))
    assert lethe("api", "DELETE", "/datasets/faces").stdout == ""
    assert answer(lethe("api", "GET", "/datasets")) == []


def test_text_and_files_are_printed_as_they_are(server: Instance, lethe: Run, olga: Account) -> None:
    made = server.submit(server.participant("ada")).json()["id"]
    assert lethe("api", "GET", f"/submissions/{made}/code").stdout_bytes == GOOD_CODE
    table = lethe("api", "GET", f"{DIGITS}/exports/submissions", "-f", "format=csv").stdout
    assert made in table
    assert table.startswith('"id",')


def test_pages_are_joined(server: Instance, lethe: Run, olga: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(103):
        server.participant(f"person-{number:03}")
    use(server, monkeypatch, "adam", Role.ADMINISTRATOR)
    assert len(answer(lethe("api", "GET", "/admin/accounts"))) == 100
    assert len(answer(lethe("api", "GET", "/admin/accounts", "--paginate"))) == 105
    assert len(answer(lethe("api", "GET", "/competitions", "--paginate"))) == 1, "it has no pages"
    people = answer(lethe("api", "GET", f"{DIGITS}/people", "--paginate"))
    assert (people["organisers"], people["has_more"]) == (["olga"], False)


def test_errors_are_told_and_with_json_printed(server: Instance, lethe: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Run `lethe login`" in told(lethe("api", "GET", "/me"))
    use(server, monkeypatch, "ada", Role.PARTICIPANT)
    assert "No competition is called 'birds'" in told(lethe("api", "GET", "/competitions/birds"))
    refused = lethe("api", "GET", "/competitions/birds", "--json")
    assert (refused.exit_code, json.loads(refused.stdout)["status"]) == (1, 404)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("FETCH", "/me"), "must be one of GET, POST, PUT, PATCH, DELETE"),
        (("GET", "https://elsewhere.example/me"), "--url names the server"),
        (("GET", "//elsewhere.example/me"), "--url names the server"),
        (("POST", "/teams", "-f", "name"), "must have the form NAME=VALUE"),
        (("POST", "/teams", "-f", "a=1", "-f", "a[b]=2"), "must be a name"),
        (("POST", "/teams", "-f", "[]=2"), "must be a name"),
        (("GET", "/me", "-F", "-"), "takes no body"),
        (("POST", "/me", "-F", "none.json"), "none.json cannot be read"),
        (("POST", "/me", "--paginate"), "goes with GET"),
    ],
)
def test_wrong_words_are_named(server, lethe, monkeypatch, words, said):
    use(server, monkeypatch, "ada", Role.PARTICIPANT)
    assert said in told(lethe("api", *words))
