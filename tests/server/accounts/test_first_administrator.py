"""The first administrator of an instance is made on its machine, and logs in as everybody does."""

import re

import pytest
from typer.testing import CliRunner

from lethe.cli.main import build_app
from server.accounts import accounts
from server.config import get_settings
from server.models.account import Role
from tests.support.instance import PASSWORD, Instance
from tests.support.web import Visitor

TOKEN = re.compile(r"https://lethe\.example\.org/reset\?token=([\w-]{20,})")


@pytest.fixture(autouse=True)
def _public_url(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_PUBLIC_URL", "https://lethe.example.org")
    get_settings.cache_clear()


def run(*arguments: str, given: str = "") -> tuple[int, str]:
    done = CliRunner().invoke(build_app(), ["create-admin", *arguments], input=given)
    return done.exit_code, done.output + str(done.exception or "")


def test_link_sets_the_password_and_opens_the_people_page(server: Instance) -> None:
    status, said = run("ada", "--email", "ada@example.org")
    assert status == 0, said
    token = TOKEN.search(said)
    assert token is not None
    visitor = Visitor(server)
    page = f"/reset?token={token[1]}"
    assert visitor.post("/reset", {"token": token[1], "new": PASSWORD}, page=page).status_code == 303
    visitor.log_in("ada", PASSWORD)
    assert visitor.client.get("/people").status_code == 200


def test_password_may_come_from_standard_input(server: Instance) -> None:
    status, said = run("ada", "--password-stdin", given=f"{PASSWORD}\n")
    assert status == 0
    assert "reset?token" not in said
    visitor = Visitor(server)
    assert visitor.log_in("ada", PASSWORD).status_code == 303


def test_existing_account_is_promoted_and_keeps_its_password(server: Instance) -> None:
    server.account("ada")
    status, said = run("ada")
    assert status == 0
    assert "reset?token" not in said
    with server.database.read() as session:
        assert accounts.find(session, "ada").role == Role.ADMINISTRATOR
    assert Visitor(server).log_in("ada", PASSWORD).status_code == 303


@pytest.mark.parametrize("option", [["--email", "other@example.org"], ["--password-stdin"]])
def test_account_that_is_there_is_not_changed_otherwise(server: Instance, option: list[str]) -> None:
    server.account("ada")
    status, said = run("ada", *option, given="another long password\n")
    assert status != 0
    assert "keeps its password and address" in said
    with server.database.read() as session:
        assert accounts.find(session, "ada").role == Role.PARTICIPANT


def test_name_that_cannot_be_one_is_refused_in_words(server: Instance) -> None:
    status, said = run("a b")
    assert status != 0
    assert "needs 3 to 40 of the characters" in said
