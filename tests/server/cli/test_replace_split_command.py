"""`lethe competition replace-split`, over the API."""

from datetime import timedelta
from pathlib import Path

from server.db import now
from server.models.account import Role
from tests.server.cli.conftest import answer, told, use
from tests.support.instance import competition_toml

WHY = ("--reason", "labels")


def test_split_is_replaced_by_the_dataset_of_a_file(server, lethe, monkeypatch):
    olga = use(server, monkeypatch, "olga", Role.ORGANISER)
    server.competition(organiser=olga)
    Path("digits.toml").write_text(
        competition_toml().replace('"digits"\n[network]', '"digits"\noptions = { noise = 0.5 }\n[network]')
    )
    shown = answer(lethe("competition", "replace-split", "digits", "public", "--file", "digits.toml", *WHY, "--json"))
    assert [(split["visibility"], split["version"]) for split in shown["replacements"]] == [("public", 2)]
    assert "public split version 2" in " ".join(lethe("competition", "status", "digits").stdout.split())
    Path("other.toml").write_text(competition_toml("letters"))
    refused = lethe("competition", "replace-split", "digits", "private", "--file", "other.toml", *WHY)
    assert "is the file of letters, not of digits" in told(refused)


def test_data_that_create_would_refuse_is_not_sent(server, lethe, monkeypatch):
    olga = use(server, monkeypatch, "olga", Role.ORGANISER)
    server.competition(organiser=olga)
    Path("pictures").mkdir()
    Path("pictures", "labels.csv").write_text("path,label\nnowhere.png,a\n")
    section = '"folder"\noptions = { root = "pictures", table = "labels.csv" }\n[network]'
    over = {"opens_at": now() - timedelta(days=9), "closes_at": now() - timedelta(days=1)}
    Path("digits.toml").write_text(competition_toml(**over).replace('"digits"\n[network]', section))
    refused = lethe("competition", "replace-split", "digits", "public", "--file", "digits.toml", *WHY)
    assert "nowhere.png" in told(refused)
    assert server.client.get("/api/v1/datasets", headers=server.headers(olga)).json() == []
