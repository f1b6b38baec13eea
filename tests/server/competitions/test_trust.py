"""Organisers are trusted with their competition, not with the host."""

from typing import Any

import pytest

from server.competitions import competitions
from server.models.account import Role
from tests.support.instance import Instance, competition_toml


def created(server: Instance, headers: dict[str, str], options: str, slug: str = "digits") -> Any:
    text = competition_toml(slug).replace('[dataset]\nname = "digits"', f'[dataset]\nname = "folder"\n{options}')
    return server.client.post("/api/v1/competitions", headers=headers, content=text)


@pytest.mark.parametrize("option", ['root = "/etc"', 'root = "../x"', 'root = "a"\ntable = "/x.csv"', 'root = "~/x"'])
def test_path_of_the_host_is_refused_of_an_organiser(server: Instance, option: str) -> None:
    answer = created(server, server.organiser(), f"[dataset.options]\n{option}")
    assert answer.status_code == 403
    assert "LETHE_DATASET_ROOTS" in answer.json()["detail"]


def test_administrator_may_name_any_path(server: Instance) -> None:
    headers = server.headers(server.account("root", Role.ADMINISTRATOR))
    assert created(server, headers, '[dataset.options]\nroot = "/data"').status_code == 201


def test_path_below_the_folders_is_taken(server: Instance) -> None:
    assert created(server, server.organiser(), '[dataset.options]\nroot = "mine"').status_code == 201


def test_file_of_earlier_rules_is_not_prepared(server: Instance) -> None:
    olga = server.account("olga", Role.ORGANISER)
    headers = server.headers(olga)
    assert created(server, headers, '[dataset.options]\nroot = "mine"').status_code == 201
    with server.database.write() as session:
        row = competitions.get(session, "digits", account=olga)
        row.config = row.config | {"dataset": {"name": "folder", "options": {"root": "/etc"}}}
    assert server.client.post("/api/v1/competitions/digits/prepare", headers=headers).status_code == 403
