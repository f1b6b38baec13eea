"""Commands of participants over the API: from the kit to a submission, a team, and a link."""

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from lethe.cli import client_config, output
from lethe.cli.participation_commands import unpack_kit
from lethe.cli.submission_commands import exit_status
from lethe.errors import HostFault
from lethe.methods.catalogue import method_source
from lethe.methods.rendering import render
from server.models.account import Account, Role
from server.starter_kit import kit_key
from tests.server.cli.conftest import URL, Run, answer, told
from tests.support.instance import GOOD_CODE, PASSWORD, Instance, make_zip


@pytest.fixture
def ada(server: Instance, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Log a participant in by the environment; return their headers."""
    headers = server.participant("ada")
    monkeypatch.setenv("LETHE_TOKEN", headers["Authorization"].removeprefix("Bearer "))
    return headers


@pytest.fixture
def code(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_bytes(GOOD_CODE)
    return path


def test_login_keeps_the_token_for_its_owner_only_until_logout(server: Instance, lethe: Run) -> None:
    server.participant("ada")
    found = answer(lethe("login", URL, "--name", "ada", "--json", typed=f"{PASSWORD}\n"))
    path = Path(found["token_kept_in"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert answer(lethe("whoami", "--json"))["name"] == "ada"
    assert answer(lethe("logout", "--json"))["forgotten"] is True
    assert "lethe login" in told(lethe("whoami"))


def test_a_wrong_token_says_to_log_in_again(lethe: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_TOKEN", "lethe_nonsense")
    assert "lethe login" in told(lethe("submissions", "-c", "digits"))


def test_competition_is_named_by_the_kit_unless_there_is_one(server: Instance, lethe: Run, tmp_path: Path) -> None:
    server.competition("digits")
    assert [found["slug"] for found in answer(lethe("competitions", "--json"))] == ["digits"]
    assert "digits" in lethe("competitions").stdout
    assert answer(lethe("show", "--json"))["slug"] == "digits"
    server.competition("faces")
    assert "digits, faces" in told(lethe("show")) or "faces, digits" in told(lethe("show"))
    (tmp_path / client_config.KIT_FILE).write_text(json.dumps({"competition": "faces"}))
    assert answer(lethe("show", "--json"))["slug"] == "faces"


def test_submission_is_sent_shown_chosen_and_cancelled(server, lethe, ada, code, monkeypatch):
    server.competition("digits", limits={"submissions_per_day": 3})
    note = "a note of a good many words, which takes its room"
    sent = answer(lethe("submit", str(code), "-m", note, "--json"))
    assert (sent["filename"], sent["message"], sent["quota"]["remaining"]) == ("mine.py", note, 2)
    assert answer(lethe("show", "--json"))["quota"]["used_today"] == 1
    assert [found["id"] for found in answer(lethe("submissions", "--json"))] == [sent["id"]]
    assert answer(lethe("status", sent["id"][:8], "--json"))["id"] == sent["id"], "its beginning is enough"
    assert "begins with 'zzz'" in told(lethe("status", "zzz"))
    logs = lethe("logs", sent["id"])
    assert ("has printed nothing" in logs.stderr, logs.stdout) == (True, "")
    assert f"lethe api PUT /submissions/{sent['id']}/publication" in lethe("select", sent["id"]).output
    assert answer(lethe("status", sent["id"], "--json"))["selected"] is True
    lethe("select", sent["id"], "--off")
    assert answer(lethe("status", sent["id"], "--json"))["selected"] is False
    monkeypatch.setattr(output.console, "width", 60)
    assert sent["id"] in lethe("submissions").output, "an id is whole in a narrow terminal"
    assert answer(lethe("cancel", sent["id"], "--json"))["stage"] == "cancelled"
    assert lethe("status", sent["id"]).exit_code == 5


def test_a_refused_file_names_its_line(server: Instance, lethe: Run, ada: dict[str, str], tmp_path: Path) -> None:
    server.competition("digits")
    path = tmp_path / "broken.py"
    path.write_text("def unlearning(net, a, b, c):\n    return (\n")
    assert "broken.py" in told(lethe("submit", str(path)))


def test_a_team_grows_by_invitation(server: Instance, lethe: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    server.competition("digits")
    tokens = {name: server.participant(name)["Authorization"].removeprefix("Bearer ") for name in ("ada", "grace")}
    monkeypatch.setenv("LETHE_TOKEN", tokens["ada"])
    assert "lethe team create NAME" in told(lethe("team"))
    assert answer(lethe("team", "create", "The Forgetful", "--json"))["members"] == ["ada"]
    assert "The Forgetful" in lethe("team").stdout
    answer(lethe("team", "invite", "grace", "--json"))
    monkeypatch.setenv("LETHE_TOKEN", tokens["grace"])
    assert answer(lethe("team", "join", "--json"))["members"] == ["ada", "grace"]
    lethe("api", "POST", "/competitions/digits/team/leave")
    monkeypatch.setenv("LETHE_TOKEN", tokens["ada"])
    link = answer(lethe("team", "invite", "--json"))["token"]
    monkeypatch.setenv("LETHE_TOKEN", tokens["grace"])
    assert answer(lethe("team", "join", link, "--json"))["members"] == ["ada", "grace"]


@pytest.mark.parametrize(
    ("submission", "status"),
    [
        ({"stage": "running", "failure": None}, 0),
        ({"stage": "scored", "failure": None}, 0),
        ({"stage": "failed", "failure": {"fault": "participant"}}, 3),
        ({"stage": "failed", "failure": {"fault": "host"}}, 4),
        ({"stage": "cancelled", "failure": None}, 5),
    ],
)
def test_exit_status_says_the_outcome(submission: dict[str, object], status: int) -> None:
    assert exit_status(submission) == status


def test_a_damaged_config_file_is_named(lethe: Run) -> None:
    path = client_config.config_folder() / "tokens.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    assert "tokens.json" in told(lethe("whoami"))


APPROVED = '[participation]\nadmission = "approved"\nterms = "Be fair."'

As = Callable[[Account], None]


@pytest.fixture
def act_as(server: Instance, monkeypatch: pytest.MonkeyPatch) -> As:
    def log_in(account: Account) -> None:
        token = server.headers(account)["Authorization"].removeprefix("Bearer ")
        monkeypatch.setenv("LETHE_TOKEN", token)

    return log_in


def test_a_person_asks_is_admitted_and_accepts(server: Instance, lethe: Run, act_as: As) -> None:
    owner, ada = server.account("olga", Role.ORGANISER), server.account("ada")
    server.competition(organiser=owner, extra=APPROVED)
    act_as(ada)
    assert answer(lethe("join", "digits", "--status", "--json"))["state"] == "none"
    assert answer(lethe("join", "digits", "-m", "from Ulm", "--json"))["state"] == "asked"
    act_as(owner)
    person = "/competitions/digits/participants/ada/decision"
    lethe("api", "POST", person, "-f", "decision=admit")
    act_as(ada)
    assert "version 1" in lethe("join", "digits").stdout
    assert answer(lethe("join", "digits", "--accept", "1", "--json"))["may_take_part"]
    act_as(owner)
    lethe("api", "POST", person, "-f", "decision=refuse", "-f", "reason=a rule")
    act_as(ada)
    assert "a rule" in lethe("join", "digits").stdout


def test_a_link_is_taken_as_its_address(server: Instance, lethe: Run, act_as: As) -> None:
    owner, ada = server.account("olga", Role.ORGANISER), server.account("ada")
    server.competition(organiser=owner, extra='[participation]\nadmission = "invited"\nprivate = true')
    act_as(owner)
    made = answer(lethe("api", "POST", "/competitions/digits/links", "-f", "uses=2", "-f", "label=lab"))
    act_as(ada)
    assert "No competition" in told(lethe("show", "-c", "digits"))
    address = f"http://localhost/competitions/digits/join?token={made['token']}"
    assert answer(lethe("join", "digits", "--token", address, "--json"))["may_take_part"]


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
