"""`lethe competition replace-split`, over the API."""

from pathlib import Path

import pytest

from server.models.account import Role
from tests.server.cli.conftest import Run, answer, told, use
from tests.support.instance import Instance, competition_toml

WHY = ("--reason", "labels")


def test_split_is_replaced_by_the_dataset_of_a_file(
    server: Instance, lethe: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
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
