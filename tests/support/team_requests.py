"""Requests about teams of the competition `digits`, for several test modules."""

from typing import Any

from tests.support.instance import Instance

BASE = "/api/v1/competitions/digits"


def call(server: Instance, headers: dict[str, str], method: str, path: str, **body: object) -> Any:
    return server.client.request(method, BASE + path, headers=headers, json=body if body or method != "GET" else None)


def lead(server: Instance, name: str, team: str) -> dict[str, str]:
    headers = server.participant(name)
    assert call(server, headers, "POST", "/teams", name=team).status_code == 201
    return headers


def link(server: Instance, leader: dict[str, str]) -> str:
    return call(server, leader, "POST", "/team/invitations").json()["token"]
