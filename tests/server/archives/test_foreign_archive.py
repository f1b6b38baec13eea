"""Archives that somebody wrote to gain something here. Every hash in them is as it should be."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from sqlalchemy import func, select

from lethe.client.bundle import verify_receipt
from lethe.errors import InvalidInput
from server.accounts import accounts
from server.admin import exports
from server.archives.exporter import MANIFEST, write
from server.competitions import competitions
from server.config import get_settings
from server.db import Base
from server.embedded.redis import RedisProcess
from server.migrate import upgrade
from server.models.account import Account, Role
from server.models.competition import Competition, CompetitionOrganiser
from server.storage import content_key
from server.submissions import receipts
from tests.server.archives.conftest import SPLIT_FILE, Other, changed, listed, play
from tests.support.instance import PASSWORD, Instance, instance

Change = Callable[[list[dict[str, Any]]], None]


@pytest.fixture(scope="module")
def played(
    redis_server: RedisProcess, _migrated_sqlite: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """The archive of a competition, made once for all, and the key that it is signed with."""
    folder = tmp_path_factory.mktemp("played")
    url, path = f"sqlite:///{shutil.copy(_migrated_sqlite, folder / 'lethe.db')}", folder / "digits.zip"
    with (
        pytest.MonkeyPatch.context() as patch,
        instance(patch, database_url=url, redis_url=redis_server.broker_url, folder=folder) as server,
    ):
        play(server)
        write(server.database, server.storage, get_settings(), slug="digits", path=path)
        return path, receipts.public_key_text(get_settings())


@pytest.fixture
def archive(played: tuple[Path, str], server: Instance, tmp_path: Path) -> Path:
    return Path(shutil.copy(played[0], tmp_path))


def table(archive: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ZipFile(archive).read(f"rows/{name}.jsonl").splitlines()]


def with_rows(archive: Path, target: Path, **changes: Change) -> Path:
    """Copy an archive with other rows of some tables, and a manifest that lists them; nobody has signed it."""
    entries: dict[str, bytes] = {}
    manifest = json.loads(ZipFile(archive).read(MANIFEST))
    for name, change in changes.items():
        rows = table(archive, name)
        change(rows)
        data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        entries |= listed(archive, f"rows/{name}.jsonl", data)
        manifest["entries"] |= json.loads(entries[MANIFEST])["entries"] | {
            key: value for key, value in manifest["entries"].items() if key in entries
        }
        manifest["entries"][f"rows/{name}.jsonl"] = json.loads(entries[MANIFEST])["entries"][f"rows/{name}.jsonl"]
    entries[MANIFEST] = json.dumps(manifest).encode()
    return changed(archive, target, dict(entries))


def each(**values: Any) -> Change:
    def change(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row.update(values)

    return change


def added(**values: Any) -> Change:
    def change(rows: list[dict[str, Any]]) -> None:
        rows.append(rows[0] | values)

    return change


def counted(other: Other) -> dict[str, int]:
    """Return how many rows each table has."""
    with other.database.read() as session:
        return {
            name: session.scalar(select(func.count()).select_from(found)) or 0
            for name, found in Base.metadata.tables.items()
        }


@pytest.fixture
def mallory(elsewhere: Other) -> Account:
    """A participant of the instance that the archive is brought to."""
    with elsewhere.database.write() as session:
        return accounts.register(session, name="Mallory", password=PASSWORD, email="m@example.org")


def test_organiser_row_with_a_local_id_gives_no_rights(archive, elsewhere, mallory, tmp_path):
    forged = with_rows(
        archive,
        tmp_path / "forged.zip",
        accounts=added(id=mallory.id, name="somebody"),
        competition_organisers=added(account_id=mallory.id),
        memberships=each(),
    )
    elsewhere.read(forged)
    with elsewhere.database.read() as session:
        competition = session.scalars(select(Competition)).one()
        found = session.get(Account, mallory.id)
        assert found is not None
        assert (found.name, found.role) == ("Mallory", Role.PARTICIPANT)
        assert not competitions.is_organiser(session, competition, found)
        organisers = session.scalars(select(CompetitionOrganiser.account_id)).all()
        assert len(organisers) == 2
        assert mallory.id not in organisers


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("competition_organisers", "account_id"),
        ("memberships", "account_id"),
        ("teams", "leader_id"),
        ("submissions", "account_id"),
        ("competitions", "created_by"),
        ("audit_events", "actor_id"),
        ("announcements", "author_id"),
        ("rejudgings", "created_by"),
    ],
)
def test_local_account_that_the_archive_does_not_bring_is_nobodys(name, column, archive, elsewhere, mallory, tmp_path):
    before = counted(elsewhere)
    assert column in table(archive, name)[0]
    forged = with_rows(archive, tmp_path / "forged.zip", **{name: each(**{column: mallory.id})})
    with pytest.raises(InvalidInput, match=f"has {name} of accounts that it does not hold"):
        elsewhere.read(forged)
    assert counted(elsewhere) == before


def test_archive_gives_nobody_a_role_or_an_address(archive: Path, elsewhere: Other, tmp_path: Path) -> None:
    forged = with_rows(archive, tmp_path / "forged.zip", accounts=each(role="administrator", email="m@example.org"))
    elsewhere.read(forged)
    with elsewhere.database.read() as session:
        found = session.scalars(select(Account)).all()
    assert {(account.role, account.email) for account in found} == {(Role.PARTICIPANT, None)}
    assert all(account.disabled_at is not None for account in found)


def test_own_key_of_an_archive_verifies_no_score(played, archive, elsewhere, tmp_path):
    """With rows that nobody has signed it is marked; with a key that is trusted it is refused."""
    forged = with_rows(archive, tmp_path / "forged.zip", public_scores=each(final_score=0.99))
    with pytest.raises(InvalidInput, match="was changed since it was signed"):
        elsewhere.read(forged, trusted=[played[1]])
    with pytest.raises(InvalidInput, match="is not one of those to trust"):
        elsewhere.read(archive, trusted=[receipts.public_key_text(elsewhere.settings)])
    assert not elsewhere.read(forged).is_vouched_for
    with elsewhere.database.read() as session:
        competition = session.scalars(select(Competition)).one()
        assert competition.scores_verified is False
        for name in (
            exports.ExportTable.PUBLIC_LEADERBOARD,
            exports.ExportTable.EVALUATIONS,
            exports.ExportTable.METRICS,
        ):
            rows = list(exports.export_rows(session, competition, name))
            assert rows
            assert {row["verified"] for row in rows} == {False}, name


def test_unverified_scores_stay_so_in_receipts_and_the_next_archive(played, archive, elsewhere, tmp_path):
    elsewhere.read(archive)
    again = tmp_path / "again.zip"
    write(elsewhere.database, elsewhere.storage, elsewhere.settings, slug="digits", path=again)
    with ZipFile(again) as zipped:
        names = [name for name in zipped.namelist() if name.startswith("receipts/")]
        issued = [json.loads(zipped.read(name)) for name in names]
    assert names
    assert {receipt["unverified_archive"] for receipt in issued} == {played[1]}
    for receipt in issued:
        verify_receipt(receipt)
    third = Other(f"sqlite:///{tmp_path / 'third.db'}", tmp_path / "third")
    upgrade(third.settings.resolved_database_url)
    third.read(again, trusted=[receipts.public_key_text(elsewhere.settings)])
    with third.database.read() as session:
        assert session.scalars(select(Competition.scores_verified)).one() is False
    third.database.dispose()


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("shards", each(result_key="evaluations/another/runs.safetensors"), "which is not a file of its evaluation"),
        ("teams", each(id="../../teams"), "has teams with the id"),
        ("competitions", each(slug="digits/private"), "its file calls it 'digits'"),
        ("competitions", each(cell_key="cell"), "is a cell of a benchmark"),
        ("competitions", added(id="another"), "holds 2 competitions"),
        ("shard_attempts", each(shard_id=10**6), "has shard_attempts of shards that it does not hold"),
    ],
)
def test_row_that_reaches_beyond_its_archive_is_refused(name, change, says, archive, elsewhere, tmp_path):
    before = counted(elsewhere)
    with pytest.raises(InvalidInput, match=says):
        elsewhere.read(with_rows(archive, tmp_path / "forged.zip", **{name: change}))
    assert counted(elsewhere) == before
    assert list(elsewhere.storage.keys("splits")) == []


def test_code_of_another_team_is_not_taken_over_by_its_hash(archive: Path, elsewhere: Other, tmp_path: Path) -> None:
    sha256 = elsewhere.storage.write("submissions/x", b"somebody's code")
    elsewhere.storage.write(content_key(sha256), b"somebody's code")
    forged = with_rows(archive, tmp_path / "forged.zip", submissions=lambda rows: rows[0].update(content_sha256=sha256))
    with pytest.raises(InvalidInput, match="which this instance has of another"):
        elsewhere.read(forged)


@pytest.mark.parametrize("hidden", [[200_000, 200_000], [8_000] * 20_000])
def test_network_that_no_worker_would_build_is_refused(hidden, archive, elsewhere, tmp_path):
    def change(rows: list[dict[str, Any]]) -> None:
        rows[0]["config"]["network"] = {"name": "mlp", "options": {"hidden": hidden}}

    with pytest.raises(InvalidInput, match=r"at most 268,435,456 are allowed|more than 10,000 layers"):
        elsewhere.read(with_rows(archive, tmp_path / "large.zip", competitions=change))


def test_archive_that_unpacks_to_too_much_is_refused(archive: Path, elsewhere: Other, tmp_path: Path) -> None:
    bomb, name = tmp_path / "bomb.zip", f"files/{SPLIT_FILE}"
    entries = listed(archive, name, bytes(100 * 2**20))
    with ZipFile(archive) as old, ZipFile(bomb, "w", ZIP_DEFLATED) as new:
        for found in old.namelist():
            new.writestr(found, entries.get(found, old.read(found)))
    assert bomb.stat().st_size < 2**20
    with pytest.raises(InvalidInput, match="files are stored as they are"):
        elsewhere.read(bomb)
    with ZipFile(archive, "a") as twice, pytest.warns(UserWarning, match="Duplicate name"):
        twice.writestr("rows/teams.jsonl", b"")
    with pytest.raises(InvalidInput, match="names an entry twice"):
        elsewhere.read(archive)
