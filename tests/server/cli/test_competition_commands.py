"""Commands of organisers over the API: create, prepare, replace, update, status, re-judge and bundle."""

import json
import os
from datetime import timedelta
from pathlib import Path
from zipfile import ZipFile

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session
from typer.testing import Result

from lethe.client.api import ApiError, LetheClient
from lethe.client.bundle import verify_receipt
from lethe.competition.visibility import Visibility
from server.competitions import competitions
from server.db import now
from server.models.account import Role
from server.models.competition import Competition, Split, SplitState
from server.models.submission import Fault
from tests.server.cli.conftest import Run, answer, told, use
from tests.support.images import pets
from tests.support.instance import Instance, competition_toml, make_zip


def test_an_organiser_creates_from_a_checked_file(server, lethe, monkeypatch, tmp_path):
    use(server, monkeypatch, "olga", Role.ORGANISER)
    path = tmp_path / "mine.toml"
    path.write_text('slug = "mine"\n')
    refused = told(lethe("competition", "create", str(path)))
    assert "title" in refused
    assert "mine.toml" in refused


def test_create_with_prepare_makes_both_splits(server, lethe, monkeypatch, tmp_path):
    use(server, monkeypatch, "olga", Role.ORGANISER)
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
    server.competition("digits", organiser=use(server, monkeypatch, "olga", Role.ORGANISER), state="preparing")
    with server.database.write() as session:
        for split in session.scalars(select(Split)):
            split.state, split.device = SplitState.PREPARING.value, "cuda"
    assert {split["state"] for split in answer(lethe("competition", "prepare", "digits", "--json"))["splits"]} == {
        "preparing"
    }
    lethe("competition", "prepare", "digits", "--any-device")
    with server.database.read() as session:
        assert {(split.state, split.device) for split in session.scalars(select(Split))} == {("pending", None)}


@pytest.mark.parametrize(("from_now", "is_past"), [(timedelta(days=-1), True), (timedelta(days=1), False)])
def test_competition_file_that_cannot_open_is_reported(lethe, tmp_path, from_now, is_past):
    closes_at = now() + from_now
    file = tmp_path / "digits.toml"
    file.write_text(competition_toml("digits", opens_at=closes_at - timedelta(days=9), closes_at=closes_at))
    for command in ("validate", "create"):
        done = lethe("competition", command, str(file))
        assert ("closes_at: is past" in str(done.exception)) is is_past


def test_images_beside_the_file_are_uploaded(server, lethe, monkeypatch, tmp_path):
    use(server, monkeypatch, "olga", Role.ORGANISER)
    for name, data in pets(240).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    options = 'name = "folder"\noptions = { root = "pets", folders = ["label", "person"] }'
    for slug in ("mine", "mine-2"):
        text = competition_toml(slug).replace('name = "digits"', options)
        (tmp_path / f"{slug}.toml").write_text(text)
    answer(lethe("competition", "create", str(tmp_path / "mine.toml"), "--json"))
    Path("two.zip").write_bytes(make_zip({"a.txt": b"1", "b.txt": b"2"}))
    lethe("api", "POST", "/datasets", "-f", "name=mine-2", "--upload", "two.zip")
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
    use(server, monkeypatch, "olga", Role.ORGANISER)
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


def test_status_warns_of_retraining_that_fits_and_of_the_same_file(server, lethe, submission):
    assert "warning" not in lethe("competition", "status", "digits").stdout
    with server.database.write() as session:
        session.execute(update(Split).values(retraining_time_s=1.0, retraining_cpu_s=0.5, start_cpu_s=0.02))
    server.submit(server.participant("bob"))
    assert answer(lethe("competition", "status", "digits", "--json"))["same_files"] == [["ada", "bob"]]
    shown = " ".join(lethe("competition", "status", "digits").stdout.split())
    assert "warning public split: retraining from scratch fits into a run's limit" in shown
    assert "ada, bob" in shown


def test_rejudging_status_says_how_far_it_is(lethe: Run, submission: str) -> None:
    made = answer(lethe("rejudge", "start", "-c", "digits", "--changed", "scorer", "--reason", "a wrong cap", "--json"))
    status = answer(lethe("rejudge", "status", made["id"], "-c", "digits", "--json"))
    assert (status["author"], status["evaluations"], status["complete"]) == ("olga", {"queued": 1}, False)
    assert status["runs_done"] == 0 < status["runs"]


def test_update_replaces_a_draft_and_nothing_that_runs(server, lethe, monkeypatch):
    competition = server.competition(organiser=use(server, monkeypatch, "olga", Role.ORGANISER), state="draft")
    Path("new.toml").write_text(competition_toml().replace("n_models = 4", "n_models = 6"))
    assert answer(lethe("competition", "update", "new.toml", "--json"))["runs"] == 6
    with server.database.write() as session:
        session.get_one(Competition, competition.id).state = "open"
    assert "can no longer be replaced" in told(lethe("competition", "update", "new.toml"))


@pytest.mark.parametrize("attacks", ["crossfit", "exact"])
def test_scale_is_told(server: Instance, lethe: Run, monkeypatch: pytest.MonkeyPatch, attacks: str) -> None:
    olga = use(server, monkeypatch, "olga", Role.ORGANISER)
    server.competition(organiser=olga, extra=f'[scoring]\nattacks = "{attacks}"')
    words = "Scored as in 2023 by the exact attacks" if attacks == "exact" else "Exact retraining scores about 1"
    for command in (("leaderboard", "-c", "digits"), ("show", "-c", "digits")):
        done = lethe(*command)
        assert words in " ".join(f"{done.stdout} {done.stderr}".split())
    file = Path("new.toml")
    file.write_text(competition_toml(extra=f'[scoring]\nattacks = "{attacks}"'))
    checked = lethe("competition", "validate", str(file), "--file-only").stdout
    assert ("which an entry can win without unlearning" in " ".join(checked.split())) == (attacks == "exact")


def test_scored_submission_shows_rank_share_and_time(server, lethe, submission, monkeypatch):
    other = use(server, monkeypatch, "bob", Role.PARTICIPANT)
    made = str(server.submit(server.headers(other)).json()["id"])
    server.score(made, 0.25)
    shown = answer(lethe("status", made[:5], "--json"))
    assert (shown["rank"], shown["teams"], shown["share_of_oracle"]) == (2, 2, None)
    assert "2 of 2" in lethe("status", made[:5]).stdout
    assert "time taken" in lethe("status", made[:5]).stdout


def test_prefix_is_looked_for_in_every_competition(server, lethe, monkeypatch):
    for slug in ("digits", "letters"):
        server.competition(slug)
    bob = use(server, monkeypatch, "bob", Role.PARTICIPANT)
    made = str(server.submit(server.headers(bob), slug="letters").json()["id"])
    assert answer(lethe("status", made[:8], "--json"))["id"] == made
    assert lethe("logs", made[:8]).exit_code == 0


def test_receipt_is_written_and_verifies(server, lethe, monkeypatch, tmp_path):
    server.competition()
    bob = use(server, monkeypatch, "bob", Role.PARTICIPANT)
    made = str(server.submit(server.headers(bob)).json()["id"])
    server.score(made, 0.25)
    Path("mine.json").write_text(lethe("api", "GET", f"/submissions/{made}/receipt").stdout)
    verify_receipt(json.loads(Path("mine.json").read_text()))
    assert made in lethe("verify", "mine.json").stdout


def test_mistake_in_a_file_is_told_once(server: Instance, lethe: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    use(server, monkeypatch, "olga", Role.ORGANISER)
    with LetheClient("http://localhost", token=os.environ["LETHE_TOKEN"]) as client, pytest.raises(ApiError) as told:
        client.create_competition(competition_toml().replace("epochs = 1", "epochs = 0"))
    assert str(told.value).count("training.epochs") == 1


def test_results_are_written_as_a_folder_that_is_checked(server: Instance, lethe: Run, submission: str) -> None:
    assert "sealed" in told(lethe("competition", "bundle", "digits", "results"))
    lethe("competition", "close", "digits")
    server.tick()
    server.score(submission, 0.25, visibility=Visibility.PRIVATE)
    server.tick()
    lethe("api", "POST", "/competitions/digits/reveal")
    made = answer(lethe("competition", "bundle", "digits", "results", "--json"))
    assert made["files"] == sum(path.is_file() for path in Path("results").rglob("*"))
    assert "exists" in told(lethe("competition", "bundle", "digits", "results"))
    checked = answer(lethe("verify", "results", "--json"))
    assert (checked["differences"], checked["scores"]) == ([], 2)
    Path("results/index.html").write_text("other")
    changed = lethe("verify", "results")
    assert changed.exit_code == 3
    assert "index.html is not what the manifest says" in changed.output
    assert lethe("competition", "bundle", "digits", "results.zip", "--without-seeds").exit_code == 0
    names = ZipFile("results.zip").namelist()
    assert {"index.html", "CITATION.cff", "manifest.json"} <= set(names)
    assert not [name for name in names if name.startswith("code/")], "nobody agreed"
