"""Commands of participants and organisers, over the API."""

import json
import stat
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session
from typer.testing import Result

from lethe.cli import client_config, output
from lethe.cli.submission_commands import exit_status
from lethe.competition.visibility import Visibility
from server.competitions import competitions
from server.db import now
from server.models.account import Account, Role
from server.models.competition import Competition, Split, SplitState
from server.models.submission import Fault
from tests.server.cli.conftest import URL, Run, answer, told, use
from tests.support.instance import GOOD_CODE, PASSWORD, Instance, competition_toml, make_zip
from tests.support.pictures import pets


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


def test_login_keeps_the_token_for_its_owner_only(server: Instance, lethe: Run) -> None:
    server.participant("ada")
    found = answer(lethe("login", URL, "--name", "ada", "--json", typed=f"{PASSWORD}\n"))
    path = Path(found["token_kept_in"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert answer(lethe("whoami", "--json"))["name"] == "ada"


def test_logout_forgets_the_token(server: Instance, lethe: Run) -> None:
    server.participant("ada")
    lethe("login", URL, "--name", "ada", typed=f"{PASSWORD}\n")
    assert answer(lethe("logout", "--json"))["forgotten"] is True
    assert "lethe login" in told(lethe("whoami"))


def test_a_wrong_token_says_to_log_in_again(lethe: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LETHE_TOKEN", "lethe_nonsense")
    assert "lethe login" in told(lethe("submissions", "-c", "digits"))


def test_competitions_are_listed_without_a_token(server: Instance, lethe: Run) -> None:
    server.competition("digits")
    assert [found["slug"] for found in answer(lethe("competitions", "--json"))] == ["digits"]
    assert "digits" in lethe("competitions").stdout


def test_the_only_competition_need_not_be_named(server: Instance, lethe: Run, ada: dict[str, str]) -> None:
    server.competition("digits")
    assert answer(lethe("show", "--json"))["quota"]["used_today"] == 0


def test_of_two_competitions_one_must_be_named(server: Instance, lethe: Run, ada: dict[str, str]) -> None:
    server.competition("digits")
    server.competition("faces")
    assert "digits, faces" in told(lethe("show")) or "faces, digits" in told(lethe("show"))


def test_the_kit_of_the_folder_names_the_competition(server, lethe, ada, tmp_path):
    server.competition("digits")
    server.competition("faces")
    (tmp_path / client_config.KIT_FILE).write_text(json.dumps({"competition": "faces"}))
    assert answer(lethe("show", "--json"))["slug"] == "faces"


def test_submit_sends_the_file_and_says_what_is_left(server, lethe, ada, code):
    server.competition("digits", limits={"submissions_per_day": 3})
    sent = answer(lethe("submit", str(code), "-m", "first", "--json"))
    assert (sent["filename"], sent["message"], sent["quota"]["remaining"]) == ("mine.py", "first", 2)
    listed = answer(lethe("submissions", "--json"))
    assert [found["id"] for found in listed] == [sent["id"]]


def test_ids_are_whole_in_a_narrow_terminal(server, lethe, ada, code, monkeypatch):
    server.competition("digits")
    sent = answer(lethe("submit", str(code), "-m", "a note of a good many words, which takes its room", "--json"))
    monkeypatch.setattr(output.console, "width", 60)
    assert sent["id"] in lethe("submissions").output


def test_a_run_without_output_says_so(server: Instance, lethe: Run, ada: dict[str, str], code: Path) -> None:
    server.competition("digits")
    sent = answer(lethe("submit", str(code), "--json"))
    result = lethe("logs", sent["id"])
    assert "has printed nothing" in result.stderr
    assert result.stdout == ""


def test_a_refused_file_names_its_line(server: Instance, lethe: Run, ada: dict[str, str], tmp_path: Path) -> None:
    server.competition("digits")
    path = tmp_path / "broken.py"
    path.write_text("def unlearning(net, a, b, c):\n    return (\n")
    assert "broken.py" in told(lethe("submit", str(path)))


def test_the_beginning_of_an_id_is_enough(server: Instance, lethe: Run, ada: dict[str, str], code: Path) -> None:
    server.competition("digits")
    sent = answer(lethe("submit", str(code), "--json"))
    assert answer(lethe("status", sent["id"][:8], "--json"))["id"] == sent["id"]
    assert "begins with 'zzz'" in told(lethe("status", "zzz"))


def test_cancel_ends_with_the_status_of_a_cancelled_one(server, lethe, ada, code):
    server.competition("digits")
    sent = answer(lethe("submit", str(code), "--json"))
    assert answer(lethe("cancel", sent["id"], "--json"))["stage"] == "cancelled"
    assert lethe("status", sent["id"]).exit_code == 5


def test_team_is_made_and_shown(server: Instance, lethe: Run, ada: dict[str, str]) -> None:
    server.competition("digits")
    assert "lethe team create NAME" in told(lethe("team"))
    assert answer(lethe("team", "create", "The Forgetful", "--json"))["members"] == ["ada"]
    assert "The Forgetful" in lethe("team").stdout


def test_a_team_grows_by_invitation(server: Instance, lethe: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    server.competition("digits")
    tokens = {name: server.participant(name)["Authorization"].removeprefix("Bearer ") for name in ("ada", "grace")}
    monkeypatch.setenv("LETHE_TOKEN", tokens["ada"])
    lethe("team", "create", "The Forgetful")
    answer(lethe("team", "invite", "grace", "--json"))
    monkeypatch.setenv("LETHE_TOKEN", tokens["grace"])
    assert answer(lethe("team", "join", "--json"))["members"] == ["ada", "grace"]
    lethe("api", "POST", "/competitions/digits/team/leave")
    monkeypatch.setenv("LETHE_TOKEN", tokens["ada"])
    link = answer(lethe("team", "invite", "--json"))["token"]
    monkeypatch.setenv("LETHE_TOKEN", tokens["grace"])
    assert answer(lethe("team", "join", link, "--json"))["members"] == ["ada", "grace"]


def test_a_submission_is_chosen_and_the_choice_taken_back(server, lethe, ada, code):
    server.competition("digits")
    sent = answer(lethe("submit", str(code), "--json"))
    assert f"lethe api PUT /submissions/{sent['id']}/publication" in lethe("select", sent["id"]).output
    assert answer(lethe("status", sent["id"], "--json"))["selected"] is True
    lethe("select", sent["id"], "--off")
    assert answer(lethe("status", sent["id"], "--json"))["selected"] is False


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


def test_an_organiser_creates_from_a_checked_file(server, lethe, monkeypatch, tmp_path):
    monkeypatch.setenv("LETHE_TOKEN", server.organiser()["Authorization"].removeprefix("Bearer "))
    path = tmp_path / "mine.toml"
    path.write_text('slug = "mine"\n')
    refused = told(lethe("competition", "create", str(path)))
    assert "title" in refused
    assert "mine.toml" in refused


def test_create_with_prepare_makes_both_splits(server, lethe, monkeypatch, tmp_path):
    monkeypatch.setenv("LETHE_TOKEN", server.organiser()["Authorization"].removeprefix("Bearer "))
    path = tmp_path / "digits.toml"
    path.write_text(competition_toml("digits"))

    def worker(session: Session, split_id: str) -> None:
        """Stand in for the workers: whatever split is asked for is ready with the commit."""
        session.get_one(Split, split_id).state = SplitState.READY.value

    monkeypatch.setattr(
        competitions.queue, "send_after_commit", lambda session, _, *to, **__: worker(session, *to) if to else None
    )
    found = answer(lethe("competition", "create", str(path), "--prepare", "--json"))
    assert [split["state"] for split in found["splits"]] == ["ready", "ready"]


def test_any_device_drops_the_kind_of_worker_of_a_split(server, lethe, monkeypatch):
    olga = server.account("olga", Role.ORGANISER)
    server.competition("digits", organiser=olga, state="preparing")
    monkeypatch.setenv("LETHE_TOKEN", server.headers(olga)["Authorization"].removeprefix("Bearer "))
    with server.database.write() as session:
        for split in session.scalars(select(Split)):
            split.state, split.device = SplitState.PREPARING.value, "cuda"
    assert {split["state"] for split in answer(lethe("competition", "prepare", "digits", "--json"))["splits"]} == {
        "preparing"
    }
    lethe("competition", "prepare", "digits", "--any-device")
    with server.database.read() as session:
        assert {(split.state, split.device) for split in session.scalars(select(Split))} == {("pending", None)}


def test_a_damaged_config_file_is_named(lethe: Run) -> None:
    path = client_config.config_folder() / "tokens.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    assert "tokens.json" in told(lethe("whoami"))


@pytest.mark.parametrize(("from_now", "is_past"), [(timedelta(days=-1), True), (timedelta(days=1), False)])
def test_competition_file_that_cannot_open_is_reported(lethe, tmp_path, from_now, is_past):
    closes_at = now() + from_now
    file = tmp_path / "digits.toml"
    file.write_text(competition_toml("digits", opens_at=closes_at - timedelta(days=9), closes_at=closes_at))
    for command in ("validate", "create"):
        done = lethe("competition", command, str(file))
        assert ("closes_at: is past" in str(done.exception)) is is_past


def test_images_beside_the_file_are_uploaded(server, lethe, monkeypatch, tmp_path):
    monkeypatch.setenv("LETHE_TOKEN", server.organiser()["Authorization"].removeprefix("Bearer "))
    for name, data in pets(240).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    options = 'name = "folder"\noptions = { root = "pets", folders = ["label", "person"] }'
    for slug in ("mine", "mine-2"):
        text = competition_toml(slug).replace('name = "digits"', options)
        (tmp_path / f"{slug}.toml").write_text(text)
    answer(lethe("competition", "create", str(tmp_path / "mine.toml"), "--json"))
    lethe("api", "POST", "/datasets", "-f", "name=mine-2", "--upload", str(zip_of_two(tmp_path)))
    answer(lethe("competition", "create", str(tmp_path / "mine-2.toml"), "--json"))  # of a name that is taken
    with server.database.read() as session:
        drafts = session.scalars(select(Competition).order_by(Competition.slug)).all()
        roots = [draft.config["dataset"]["options"]["root"] for draft in drafts]
        assert roots == ["upload:mine", "upload:mine-2-2"]
        assert 'root = "upload:mine"' in drafts[0].source
    listed = {one["name"]: one["files"] for one in answer(lethe("api", "GET", "/datasets"))}
    assert listed == {"mine": 240, "mine-2": 2, "mine-2-2": 240}
    text = (tmp_path / "mine.toml").read_text().replace('"folder"', '"utkface"')
    (tmp_path / "faces.toml").write_text(text.replace('slug = "mine"', 'slug = "faces"'))
    assert "cannot be uploaded (only folder" in told(lethe("competition", "create", str(tmp_path / "faces.toml")))


def test_only_a_folder_of_data_is_uploaded_and_only_once_all_of_it_may_be(server, lethe, monkeypatch, tmp_path):
    monkeypatch.setenv("LETHE_TOKEN", server.organiser()["Authorization"].removeprefix("Bearer "))
    folder = tmp_path / "mine" / "pets"
    for name, data in {**pets(240), "pets/.git/config": b"token", "pets/.secret": b"1"}.items():
        (tmp_path / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mine" / name).write_bytes(data)
    file = tmp_path / "mine" / "mine.toml"

    def create(written: str) -> Result:
        options = f'name = "folder"\noptions = {{ {written}, folders = ["label", "person"] }}'
        file.write_text(competition_toml("mine").replace('name = "digits"', options))
        return lethe("competition", "create", str(file), "--json")

    for root in (".", "..", "pets/.."):
        assert "is the folder of this file, or one around it" in told(create(f'root = "{root}"'))
    assert "is hidden" in told(create('root = "pets/.git"'))
    assert "cannot be found in the text" in told(create('"root" = "pets"'))
    (folder / "passwd").symlink_to("/etc/passwd")
    assert "leads out of pets" in told(create('root = "pets"'))
    assert answer(lethe("api", "GET", "/datasets")) == []
    (folder / "passwd").unlink()
    answer(create('root = "pets"'))
    assert [one["files"] for one in answer(lethe("api", "GET", "/datasets"))] == [240]


def zip_of_two(folder: Path) -> Path:
    path = folder / "two.zip"
    path.write_bytes(make_zip({"a.txt": b"1", "b.txt": b"2"}))
    return path


APPROVED = '[participation]\nadmission = "approved"\nterms = "Be fair."'

WHY = ("--reason", "a rule")

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


REPLACE_WHY = ("--reason", "labels")


def test_split_is_replaced_by_the_dataset_of_a_file(server, lethe, monkeypatch):
    olga = use(server, monkeypatch, "olga", Role.ORGANISER)
    server.competition(organiser=olga)
    Path("digits.toml").write_text(
        competition_toml().replace('"digits"\n[network]', '"digits"\noptions = { noise = 0.5 }\n[network]')
    )
    shown = answer(
        lethe("competition", "replace-split", "digits", "public", "--file", "digits.toml", *REPLACE_WHY, "--json")
    )
    assert [(split["visibility"], split["version"]) for split in shown["replacements"]] == [("public", 2)]
    assert "public split version 2" in " ".join(lethe("competition", "status", "digits").stdout.split())
    Path("other.toml").write_text(competition_toml("letters"))
    refused = lethe("competition", "replace-split", "digits", "private", "--file", "other.toml", *REPLACE_WHY)
    assert "is the file of letters, not of digits" in told(refused)


def test_data_that_create_would_refuse_is_not_sent(server, lethe, monkeypatch):
    olga = use(server, monkeypatch, "olga", Role.ORGANISER)
    server.competition(organiser=olga)
    Path("pictures").mkdir()
    Path("pictures", "labels.csv").write_text("path,label\nnowhere.png,a\n")
    section = '"folder"\noptions = { root = "pictures", table = "labels.csv" }\n[network]'
    over = {"opens_at": now() - timedelta(days=9), "closes_at": now() - timedelta(days=1)}
    Path("digits.toml").write_text(competition_toml(**over).replace('"digits"\n[network]', section))
    refused = lethe("competition", "replace-split", "digits", "public", "--file", "digits.toml", *REPLACE_WHY)
    assert "nowhere.png" in told(refused)
    assert server.client.get("/api/v1/datasets", headers=server.headers(olga)).json() == []


def test_status_shows_a_failed_final_until_it_is_decided_on(server: Instance, lethe: Run, submission: str) -> None:
    assert "decision needed" not in lethe("competition", "status", "digits").stdout
    lethe("competition", "close", "digits")
    server.tick()
    server.fail(submission, Fault.PARTICIPANT, visibility=Visibility.PRIVATE)
    server.tick()
    shown = " ".join(lethe("competition", "status", "digits").stdout.split())
    assert f"decision needed: final {submission} of ada failed:" in shown.replace(
        "decision needed ", "decision needed: "
    )
    decision = f"/competitions/digits/finals/{submission}/decision"
    assert f"lethe api POST {decision} -f decision=exclude|run-again|use-next-choice -f reason=WHY" in shown
    answer(lethe("api", "POST", decision, "-f", "decision=exclude", "-f", "reason=it divides by zero"))
    decided = lethe("competition", "status", "digits").stdout
    assert "provisional" in decided
    assert "decision needed" not in decided


def test_status_warns_where_whoever_retrains_is_first(server: Instance, lethe: Run, submission: str) -> None:
    assert "warning" not in lethe("competition", "status", "digits").stdout
    with server.database.write() as session:
        session.execute(update(Split).values(retraining_time_s=1.0, retraining_cpu_s=0.5, start_cpu_s=0.02))
    shown = " ".join(lethe("competition", "status", "digits").stdout.split())
    assert "warning public split: retraining from scratch fits into a run's limit" in shown


def test_status_names_teams_with_the_same_file(server: Instance, lethe: Run, submission: str) -> None:
    server.submit(server.participant("bob"))
    assert answer(lethe("competition", "status", "digits", "--json"))["same_files"] == [["ada", "bob"]]
    assert "ada, bob" in lethe("competition", "status", "digits").stdout


def test_rejudging_status_says_how_far_it_is(lethe: Run, submission: str) -> None:
    made = answer(lethe("rejudge", "start", "-c", "digits", "--changed", "scorer", "--reason", "a wrong cap", "--json"))
    status = answer(lethe("rejudge", "status", made["id"], "-c", "digits", "--json"))
    assert (status["author"], status["evaluations"], status["complete"]) == ("olga", {"queued": 1}, False)
    assert status["runs_done"] == 0 < status["runs"]
