"""The report of a split over HTTP: for its organisers alone, as soon as there is one."""

import json

import pytest

from server.models.account import Role
from tests.support.instance import Instance

REPORT = {
    "competition": "digits",
    "visibility": "private",
    "images": {"retain": 3, "forget": 1},
    "persons": {"retain": 2, "forget": 1},
    "classes": {"retain": {"0": 2, "1": 1}, "forget": {"0": 1, "1": 0}},
    "class_names": ["0", "1"],
    "confused_labels": 0,
    "pairs": [
        {
            "sets": ["retain", "forget"],
            "shared_images": 0,
            "shared_persons": 0,
            "exact_duplicates": 0,
            "near_duplicates": 1,
            "examples": [[4, 7, 0.997]],
        }
    ],
}
URL = "/api/v1/competitions/digits/splits/{}/report"


@pytest.mark.parametrize("place", ["report.json", "work/shared/report.json"])
def test_organisers_read_what_the_preparation_wrote(server: Instance, place: str) -> None:
    olga = server.headers(organiser := server.account("olga", Role.ORGANISER))
    server.competition(organiser=organiser)
    assert server.client.get(URL.format("private"), headers=olga).status_code == 404
    server.storage.write(f"splits/digits/private/{place}", json.dumps(REPORT).encode())
    assert server.client.get(URL.format("private"), headers=olga).json() == REPORT
    missing = server.client.get(URL.format("public"), headers=olga)
    assert "public split of digits has no report yet" in missing.json()["detail"]


def test_a_damaged_report_is_the_hosts_fault(server: Instance) -> None:
    olga = server.headers(organiser := server.account("olga", Role.ORGANISER))
    server.competition(organiser=organiser)
    server.storage.write("splits/digits/public/report.json", b"{")
    answer = server.client.get(URL.format("public"), headers=olga)
    assert (answer.status_code, answer.json()["title"]) == (503, "Platform failure")
