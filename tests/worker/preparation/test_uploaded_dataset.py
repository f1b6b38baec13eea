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
    table = b"path,label\na/1.png,0\na/2.png,1\n"
    return make_zip(
        {"faces/images.csv": table, "faces/a/1.png": png("RGB", 40), "faces/a/2.png": png("RGB", 40)} | more
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


def png(mode: str, side: int) -> bytes:
    picture = io.BytesIO()
    Image.new(mode, (side, side)).save(picture, "PNG")
    return picture.getvalue()


def many_arrays() -> bytes:
    """Return arrays that would fill memory, in a small archive."""
    n, buffer = 12_000_000, io.BytesIO()
    arrays = {"images.npy": np.zeros((n, 1, 1), np.uint8), "labels.npy": np.zeros(n, np.int8)}
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(name, "w") as target:
                np.save(target, array)
    return buffer.getvalue()


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"  # starts a program
TABLE = "x/images.csv"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda _: make_zip({TABLE: b"path,label\nnone.png,0\n", "x/b": b""}),
            "upload:faces/images.csv names 'none.png'",
        ),
        (lambda folder: make_zip({TABLE: f"path,label\n{folder}/s.png,0\n".encode(), "x/b": b""}), "lies outside"),
        (lambda _: faces(**{"faces/a/1.png": png("1", 8000)}), "8000 x 8000 pixels"),
        (lambda _: faces(**{"faces/a/1.png": EPS}), "cannot be read as an image"),
    ],
    ids=["no such file", "a file of the host", "a large picture", "a program"],
)
def test_table_or_picture_that_is_not_the_datasets_is_refused(context, tmp_path, make, said):
    (tmp_path / "s.png").write_bytes(b"x")
    file = uploaded(context, make(tmp_path))
    with pytest.raises(InvalidDataset, match=said) as caught:
        opened(context, file)
    assert str(context.settings.home) not in caught.value.detail


def test_arrays_that_would_fill_memory_are_refused(context: Any) -> None:
    with pytest.raises(InvalidDataset, match="at most 10000000"):
        opened(context, uploaded(context, many_arrays(), "numpy"))


def test_pictures_that_would_fill_the_disk_are_refused(context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lethe.data.datasets.image_files.MAX_DECODED_BYTES", 2 * 3 * 32 * 32 - 1)
    with pytest.raises(InvalidDataset, match="2 images of 32 pixels take more than"):
        opened(context, uploaded(context, faces()))
