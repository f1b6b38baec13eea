"""One upload of a dataset: received to disk, read in the parsing process, stored under its SHA-256."""

import hashlib
from contextlib import AbstractAsyncContextManager
from tempfile import SpooledTemporaryFile
from typing import IO

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request

from lethe.errors import AppError, InvalidInput, Violation
from server.admission import Admission
from server.config import Settings
from server.datasets import datasets
from server.datasets.datasets import CheckedUpload
from server.db import Database
from server.models.account import Account
from server.models.dataset import Dataset
from server.parsing import dataset_archive as archive
from server.parsing.client import turns
from server.received_form import received_form
from server.storage import Storage, dataset_key

WHAT = "A dataset"


def received_dataset(request: Request, settings: Settings) -> AbstractAsyncContextManager[FormData]:
    """Yield the form of an upload."""
    limit_mib = settings.dataset_upload_mib
    return received_form(request, limit_mib=limit_mib, what=WHAT, refusal=InvalidInput)


async def store_dataset(
    form: FormData, *, admission: Admission, database: Database, storage: Storage, settings: Settings, account: Account
) -> Dataset:
    """Check and store the form's file under the form's name. Raises InvalidInput, Conflict, TooLarge or HostFault."""
    name, file = form.get("name"), form.get("file")
    name = datasets.check_name(name if isinstance(name, str) else "")
    if not isinstance(file, UploadFile) or not file.size:
        missing = "is missing, empty, or was cut off"
        raise InvalidInput(f"The file {missing}", violations=(Violation("file", missing),))
    opened = _on_disk(file)
    limits = archive_limits(settings)
    found = await turns().run_on_file("check_dataset", opened, limits=limits)
    sha256 = await admission.long_work(_hash, opened)
    checked = CheckedUpload(sha256, file.size, found["unpacked_bytes"], found["files"])
    await admission.write(database, datasets.reserve, settings, account, name=name, archive=checked)
    try:
        await admission.long_work(storage.write_file, dataset_key(sha256), opened)
    except AppError:
        await admission.write(database, datasets.drop_reserved, name)
        raise
    return await admission.write(database, datasets.mark_stored, name)


def archive_limits(settings: Settings) -> dict[str, int]:
    """Return what an archive may hold, as the parsing process is told."""
    return {"files": archive.MAX_FILES, "unpacked_bytes": settings.dataset_unpacked_mib << 20}


def _on_disk(file: UploadFile) -> IO[bytes]:
    """Return the received file as one that another process can be given."""
    spooled = file.file
    if isinstance(spooled, SpooledTemporaryFile):
        spooled.rollover()
    return spooled  # has what is used of a file


def _hash(file: IO[bytes]) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
