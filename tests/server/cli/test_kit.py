"""`lethe init` unpacks what the server has, and nothing that leads elsewhere."""

import json
from pathlib import Path

import pytest

from server.cli.kit_commands import unpack_kit
from server.errors import HostFault
from server.starter_kit.service import kit_key
from tests.server.cli.conftest import URL, Run, answer, told
from tests.support.instance import Instance, zip_of


def test_the_kit_lies_in_a_folder_of_its_own(server: Instance, lethe: Run) -> None:
    server.competition("digits")
    server.storage.write(kit_key("digits"), zip_of({"digits/README.md": b"read me", "digits/data/kit.json": b"{}"}))
    made = answer(lethe("init", "--json"))
    assert made["files"] == ["README.md", "data/kit.json"]
    assert json.loads(Path("digits/lethe.json").read_text()) == {"url": URL, "competition": "digits"}
    assert "not empty" in told(lethe("init"))


def test_a_competition_without_a_kit_says_so(server: Instance, lethe: Run) -> None:
    server.competition("digits")
    assert "starter kit" in told(lethe("init"))


def test_a_hidden_competition_has_no_kit_for_strangers(server: Instance, lethe: Run) -> None:
    server.competition("secret", state="draft")
    server.storage.write(kit_key("secret"), zip_of({"secret/a": b""}))
    assert "no competition called 'secret'" in told(lethe("init", "-c", "secret"))


@pytest.mark.parametrize("name", ["top/../../evil", "/etc/evil", "lone"])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(HostFault, match=r"evil|lone"):
        unpack_kit(zip_of({name: b"x"}), tmp_path / "kit")
    assert not list(tmp_path.rglob("evil"))


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostFault, match="damaged"):
        unpack_kit(b"nothing", tmp_path)
