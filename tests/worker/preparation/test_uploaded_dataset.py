"""A worker unpacks an uploaded dataset for as long as it reads it, and gives it to its own competition only."""

import hashlib
import io
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lethe.competition.file import CompetitionFile
from lethe.data.datasets.registry import datasets_below, open_dataset
from lethe.data.errors import InvalidDataset
from lethe.errors import HostFault, InvalidCompetitionFile
from server.competitions import competitions
from server.config import Settings
from server.datasets import datasets
from server.datasets.datasets import CheckedUpload
from server.db import Database
from server.models.account import Account, Role
from server.storage import Storage, dataset_key
from tests.support.instance import competition_toml, make_zip
from worker.preparation.prepare_split_job import uploaded_datasets


@pytest.fixture
def context(migrated_sqlite_url: str, tmp_path: Path) -> Any:
    database = Database(migrated_sqlite_url)
    storage = Storage(str(tmp_path / "storage"))
    return SimpleNamespace(settings=Settings(home=tmp_path / "home"), database=database, storage=storage)


def faces(**more: bytes) -> bytes:
    """Return a dataset of two pictures with their table."""
    picture = io.BytesIO()
    Image.new("RGB", (40, 40), (9, 9, 9)).save(picture, "PNG")
    table = b"path,label\na/1.png,0\na/2.png,1\n"
    return make_zip(
        {"faces/images.csv": table, "faces/a/1.png": picture.getvalue(), "faces/a/2.png": picture.getvalue()} | more
    )


def uploaded(context: Any, archive: bytes, name: str = "folder") -> CompetitionFile:
    """Store a dataset and a draft that uses it. Return the draft's file."""
    checked = CheckedUpload(hashlib.sha256(archive).hexdigest(), len(archive), len(archive), 3)
    text = competition_toml().replace(
        '[dataset]\nname = "digits"\n', f'[dataset]\nname = "{name}"\n[dataset.options]\nroot = "upload:faces"\n'
    )
    context.storage.write(dataset_key(checked.sha256), archive)
    with context.database.write() as session:
        olga = Account(name="olga", name_key="olga", role=Role.ORGANISER.value, password_hash="x")
        session.add(olga)
        session.flush()
        datasets.reserve(session, context.settings, olga, name="faces", archive=checked)
        datasets.mark_stored(session, "faces")
        return competitions.stored_file(competitions.create(session, text, organiser=olga))


def opened(context: Any, file: CompetitionFile) -> int:
    with uploaded_datasets(context, file) as uploads, datasets_below([], uploads=uploads):
        return len(open_dataset(file.dataset))


def left(context: Any) -> list[str]:
    return [path.name for path in (context.settings.scratch / "datasets").rglob("*") if path.is_file()]


def test_uploaded_dataset_is_read_and_removed(context: Any) -> None:
    file = uploaded(context, faces())
    assert opened(context, file) == 2
    assert left(context) == [".lock"], "neither the archive nor what was decoded of it stays"


def test_damaged_file_is_the_hosts_fault(context: Any) -> None:
    archive = faces()
    file = uploaded(context, archive)
    context.storage.write(dataset_key(hashlib.sha256(archive).hexdigest()), archive + b"x")
    with pytest.raises(HostFault, match="damaged"):
        opened(context, file)
    assert left(context) == [".lock"]


def test_competition_without_the_dataset_is_told_so(context: Any) -> None:
    file = uploaded(context, faces())
    with context.database.write() as session:
        row = datasets.list_datasets(session, session.query(Account).one())[0]
        row.deleted_at = row.created_at
    with pytest.raises(InvalidCompetitionFile, match="that you have uploaded"):
        opened(context, file)


def test_error_names_files_by_the_organisers_root(context: Any) -> None:
    file = uploaded(context, make_zip({"x/images.csv": b"path,label\nnone.png,0\n", "x/b": b""}))
    with pytest.raises(InvalidDataset) as caught:
        opened(context, file)
    assert "upload:faces/images.csv names 'none.png', which does not exist" in caught.value.detail
    assert str(context.settings.home) not in caught.value.detail


@pytest.mark.parametrize(("option", "value"), [("table", "../../../secret.csv"), ("cache", "/tmp/x")])
def test_options_lead_nowhere_else(context: Any, option: str, value: str) -> None:
    file = uploaded(context, faces())
    options = {**file.dataset.options, option: value}
    dataset = file.dataset.model_copy(update={"options": options})
    with (
        uploaded_datasets(context, file) as uploads,
        datasets_below([], uploads=uploads),
        pytest.raises(InvalidDataset),
    ):
        open_dataset(dataset)


def test_table_that_names_a_file_of_the_host_is_refused(context: Any, tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(b"x")
    table = f"path,label\n{tmp_path}/secret.png,0\n".encode()
    file = uploaded(context, make_zip({"x/images.csv": table, "x/b": b""}))
    with pytest.raises(InvalidDataset, match="lies outside"):
        opened(context, file)


def test_arrays_that_would_fill_memory_are_refused(context: Any) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in (
            ("images.npy", np.zeros((12_000_000, 1, 1), np.uint8)),
            ("labels.npy", np.zeros(12_000_000, np.int8)),
        ):
            with archive.open(name, "w") as target:
                np.save(target, array)
    with pytest.raises(InvalidDataset, match="at most 10000000"):
        opened(context, uploaded(context, buffer.getvalue(), "numpy"))


def test_picture_beyond_the_limits_is_refused(context: Any) -> None:
    huge = io.BytesIO()
    Image.new("1", (8000, 8000)).save(huge, "PNG")
    with pytest.raises(InvalidDataset, match="8000 x 8000 pixels"):
        opened(context, uploaded(context, faces(**{"faces/a/1.png": huge.getvalue()})))


def test_pictures_that_would_fill_the_disk_are_refused(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lethe.data.datasets.image_files.MAX_DECODED_BYTES", 2 * 3 * 32 * 32 - 1)
    with pytest.raises(InvalidDataset, match="2 images of 32 pixels take more than"):
        opened(context, uploaded(context, faces()))


def test_picture_that_starts_a_program_is_refused(context: Any) -> None:
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"
    with pytest.raises(InvalidDataset, match="cannot be read as an image"):
        opened(context, uploaded(context, faces(**{"faces/a/1.png": eps})))
