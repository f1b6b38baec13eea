"""`lethe init` unpacks what the server has, and nothing that leads elsewhere."""

import json
from pathlib import Path

import pytest

from lethe.cli.participation_commands import unpack_kit
from lethe.errors import HostFault
from lethe.methods.catalogue import method_source
from lethe.methods.rendering import render
from server.starter_kit import kit_key
from tests.server.cli.conftest import URL, Run, answer, told
from tests.support.instance import PASSWORD, Instance, make_zip


def test_the_kit_lies_in_a_folder_of_its_own(server: Instance, lethe: Run) -> None:
    server.competition("digits")
    server.storage.write(kit_key("digits"), make_zip({"digits/README.md": b"read me", "digits/data/kit.json": b"{}"}))
    made = answer(lethe("init", "--json"))
    assert made["files"] == ["README.md", "data/kit.json"]
    assert json.loads(Path("digits/lethe.json").read_text()) == {"url": URL, "competition": "digits"}
    assert "not empty" in told(lethe("init"))


def test_a_competition_without_a_kit_says_so(server: Instance, lethe: Run) -> None:
    server.competition("digits")
    assert "starter kit" in told(lethe("init"))


def test_a_hidden_competition_has_no_kit_for_strangers(server: Instance, lethe: Run) -> None:
    server.competition("secret", state="draft")
    server.storage.write(kit_key("secret"), make_zip({"secret/a": b""}))
    assert "No competition is called 'secret'" in told(lethe("init", "-c", "secret"))


@pytest.mark.parametrize("name", ["top/../../evil", "/etc/evil", "lone"])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(HostFault, match=r"evil|lone"):
        unpack_kit(make_zip({name: b"x"}), tmp_path / "kit")
    assert not list(tmp_path.rglob("evil"))


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostFault, match="damaged"):
        unpack_kit(b"nothing", tmp_path)


def test_kit_begins_with_a_method(server: Instance, lethe: Run) -> None:
    server.competition("digits")
    server.storage.write(kit_key("digits"), make_zip({"digits/submission.py": b"old", "digits/README.md": b""}))
    assert answer(lethe("init", "--from", "scrub", "--json"))["files"] == ["README.md", "submission.py"]
    assert Path("digits/submission.py").read_text() == method_source("scrub")


def test_kit_from_an_unknown_method_is_not_made(server: Instance, lethe: Run) -> None:
    server.competition("digits")
    server.storage.write(kit_key("digits"), make_zip({"digits/submission.py": b"old"}))
    assert "scrub" in told(lethe("init", "--from", "scrubb"))
    assert not Path("digits").exists()


def test_method_is_submitted_like_a_file(server: Instance, lethe: Run) -> None:
    server.competition("digits")
    server.account("ada")
    assert lethe("login", URL, "--name", "ada", typed=f"{PASSWORD}\n").exit_code == 0
    sent = answer(lethe("submit", "--method", "scrub", "--set", "LR=0.25", "--json"))
    assert (sent["filename"], sent["message"]) == ("scrub.py", "scrub LR=0.25")
    assert lethe("api", "GET", f"/submissions/{sent['id']}/code").stdout == render("scrub", {"LR": 0.25})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name a file, or a method"),
        (("own.py", "--method", "scrub"), "not both"),
        (("own.py", "--set", "LR=1"), "--set goes with --method"),
        (("--method", "scrub", "--set", "COLOUR=1"), "no constant 'COLOUR'"),
    ],
)
def test_submit_takes_one_file_or_one_method(lethe: Run, words: tuple[str, ...], said: str) -> None:
    Path("own.py").write_text("x = 1\n")
    assert said in told(lethe("submit", *words))
