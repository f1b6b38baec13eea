"""Datasets that organisers upload: who may, how much, the upload itself, and which competition may use which."""

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request

from lethe.competition.file import CompetitionFile
from lethe.competition.sections import DATASET_NAME, DATASET_NAME_RULE, UPLOAD, UPLOADED_ADAPTERS, uploaded_name
from lethe.errors import AppError, InvalidCompetitionFile, InvalidInput, NotFound, Violation
from server import audit
from server.admission import Admission
from server.config import Settings
from server.datasets import dataset_repository
from server.db import Database, now
from server.errors import Conflict, NotAllowed, TooLarge
from server.models.account import Account, Role
from server.models.competition import Dataset
from server.parsing import tasks
from server.parsing.client import run_on_file, turn_for_file, turns
from server.received_form import received_form
from server.storage import Storage, dataset_key


def propose(
    storage: Storage,
    settings: Settings,
    dataset: Dataset,
    *,
    at: datetime,
    given: Mapping[str, Any] | None = None,
    read_as: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return what `server.parsing.tasks.propose_competition` does.

    given: values in place of the proposed ones. read_as: options of the dataset in place of what is guessed.

    One archive at a time is fetched and read by each web process. Raises HostFault while that is another.
    """
    with turn_for_file(), tempfile.TemporaryDirectory() as made:
        archive = Path(made) / "archive"
        storage.download(dataset_key(dataset.sha256), archive)
        with archive.open("rb") as file:
            proposal: dict[str, Any] = run_on_file(
                "propose_competition",
                file,
                limits=archive_limits(settings),
                root=f"{UPLOAD}{dataset.name}",
                slug=dataset.name,
                title=f"Forget: {dataset.name.replace('-', ' ')}",
                at=at.isoformat(),
                read_as=dict(read_as or {}),
                given={name: v.isoformat() if isinstance(v, datetime) else v for name, v in (given or {}).items()},
            )
            return proposal


MAX_DATASETS = 50  # of one account
DELETED = "deleted-"  # begins the name that a deleted dataset leaves behind


@dataclass(frozen=True)
class CheckedUpload:
    """An archive that was read as a whole, and is one."""

    sha256: str
    archive_bytes: int
    unpacked_bytes: int
    files: int


def check_may_upload(session: Session, settings: Settings, account: Account) -> None:
    """Raise NotAllowed for who is not an organiser, or TooLarge where an account's quota of storage is used up."""
    if account.role not in (Role.ORGANISER, Role.ADMINISTRATOR):
        raise NotAllowed("Only organisers upload datasets")
    if not settings.dataset_upload_mib:
        raise NotAllowed("This server takes no datasets; its administrator names folders for them instead")
    _check_room(session, settings, account, more_bytes=1)


def check_name(name: str) -> str:
    """Return the name of a new dataset. Raises InvalidInput."""
    if not DATASET_NAME.fullmatch(name) or name.startswith(DELETED):
        raise InvalidInput(
            f"The name {DATASET_NAME_RULE}", violations=(Violation("name", DATASET_NAME_RULE, name[:80]),)
        )
    return name


def reserve(session: Session, settings: Settings, account: Account, *, name: str, archive: CheckedUpload) -> Dataset:
    """Write the row before its file, so that it counts. Raises Conflict for a name that is taken, or TooLarge."""
    dataset_repository.lock_account(session, account.id)
    _check_room(session, settings, account, more_bytes=archive.archive_bytes)
    dataset = Dataset(name=check_name(name), account_id=account.id, **vars(archive))
    try:
        with session.begin_nested():
            session.add(dataset)
    except IntegrityError as error:
        taken = Violation("name", "is taken; choose another", name)
        raise Conflict(f"There is already a dataset called {name!r}", violations=(taken,)) from error
    data = {"sha256": archive.sha256, "bytes": archive.archive_bytes}
    audit.record(session, account, "dataset.uploaded", subject=name, data=data)
    return dataset


def mark_stored(session: Session, name: str) -> Dataset:
    """Mark the file as stored: competitions may use the dataset now. Raises NotFound if it was deleted."""
    dataset = _get(session, name)
    dataset.stored_at = now()
    return dataset


def drop_reserved(session: Session, name: str) -> None:
    """Remove the row of a file that storage did not take."""
    dataset = dataset_repository.by_name(session, name)
    if dataset is not None and dataset.stored_at is None:
        session.delete(dataset)


def get_usable(session: Session, name: str, *, actor: Account) -> Dataset:
    """Return a stored dataset of an organiser's own; of anybody for an administrator. Raises NotFound."""
    dataset = dataset_repository.by_name(session, name)
    if dataset is None or dataset.stored_at is None or not _may_use(session, dataset, "", actor):
        raise NotFound(f"You have no dataset called {name[:80]!r}")
    return dataset


def list_datasets(session: Session, account: Account) -> Sequence[Dataset]:
    """Return the datasets of an organiser, and every one to an administrator, by name."""
    return dataset_repository.datasets(session, None if account.role == Role.ADMINISTRATOR else account.id)


def delete(session: Session, name: str, *, actor: Account) -> None:
    """Delete a dataset; `lethe gc --delete` removes its file. Raises NotFound, or Conflict while it is used."""
    dataset = _get(session, name)
    if dataset.account_id != actor.id and actor.role != Role.ADMINISTRATOR:
        raise NotFound(f"You have no dataset called {name!r}")
    used_by = dataset_repository.competitions_using(session, name)
    if used_by:
        raise Conflict(f"{name} is the dataset of {', '.join(used_by)}, and is needed to prepare it again")
    _mark_deleted(dataset, now())
    audit.record(session, actor, "dataset.deleted", subject=name)


def delete_unused(session: Session, *, before: datetime, account: Account | None = None) -> int:
    """Delete what was uploaded before a moment and no competition file names. Return how many."""
    old = dataset_repository.created_before(session, before, account_id=account.id if account else None)
    unused = [dataset for dataset in old if not dataset_repository.competitions_using(session, dataset.name)]
    for dataset in unused:
        audit.record(session, None, "dataset.deleted", subject=dataset.name, reason="no competition used it")
        _mark_deleted(dataset, now())
    return len(unused)


def forget_collected(session: Session, *, at: datetime, keep_hours: float) -> None:
    """Stop counting deleted datasets once their files may be collected."""
    dataset_repository.forget_deleted(session, before=at - timedelta(hours=keep_hours))


def check_usable(session: Session, file: CompetitionFile, *, actor: Account) -> None:
    """Raise InvalidCompetitionFile unless the uploaded dataset that a file names is there for its organisers."""
    name = uploaded_name(file.dataset.options)
    if name is None:
        return
    if file.dataset.name not in UPLOADED_ADAPTERS:
        allowed = f"must be {', '.join(UPLOADED_ADAPTERS[:-1])} or {UPLOADED_ADAPTERS[-1]} for an uploaded dataset"
        _refuse(Violation("dataset.name", allowed, file.dataset.name))
    dataset = dataset_repository.by_name(session, name)
    if dataset is None or dataset.stored_at is None or not _may_use(session, dataset, file.slug, actor):
        _refuse(Violation("dataset.options.root", "names no dataset that you have uploaded", name[:80]))


def find_for_competition(session: Session, file: CompetitionFile) -> Dataset | None:
    """Return a competition's uploaded dataset, None if it needs none. Raises InvalidCompetitionFile if it is gone."""
    name = uploaded_name(file.dataset.options)
    if name is None:
        return None
    check_usable(session, file, actor=dataset_repository.get_creator(session, slug=file.slug))
    return _get(session, name)


def _may_use(session: Session, dataset: Dataset, slug: str, actor: Account) -> bool:
    if actor.id == dataset.account_id or actor.role == Role.ADMINISTRATOR:
        return True
    return dataset_repository.organises(session, slug=slug, account_id=dataset.account_id)


def _get(session: Session, name: str) -> Dataset:
    dataset = dataset_repository.by_name(session, name)
    if dataset is None:
        raise NotFound(f"You have no dataset called {name!r}")
    return dataset


def _mark_deleted(dataset: Dataset, at: datetime) -> None:
    dataset.name, dataset.deleted_at = f"{DELETED}{dataset.id}", at


def _check_room(session: Session, settings: Settings, account: Account, *, more_bytes: int) -> None:
    count, used_bytes = dataset_repository.usage(session, account.id)
    if count >= MAX_DATASETS:
        raise TooLarge(f"You have {count} datasets, and at most {MAX_DATASETS}; {_UNTIL}")
    room_mib = settings.datasets_mib_per_account
    if used_bytes + more_bytes > room_mib << 20:
        raise TooLarge(f"Your datasets may have {room_mib} MiB together, and have {used_bytes >> 20} already; {_UNTIL}")


def _refuse(wrong: Violation) -> None:
    raise InvalidCompetitionFile(f"{wrong.field} {wrong.message}", violations=(wrong,))


_UNTIL = "deleted ones count until the server has removed their files, about a day later"


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
    name = check_name(name if isinstance(name, str) else "")
    if not isinstance(file, UploadFile) or not file.size:
        missing = "is missing, empty, or was cut off"
        raise InvalidInput(f"The file {missing}", violations=(Violation("file", missing),))
    opened = _on_disk(file)
    limits = archive_limits(settings)
    content = await turns().run_on_file("check_dataset", opened, limits=limits)
    sha256 = await admission.long_work(_hash, opened)
    checked = CheckedUpload(sha256, file.size, content["unpacked_bytes"], content["files"])
    await admission.write(database, reserve, settings, account, name=name, archive=checked)
    try:
        await admission.long_work(storage.write_file, dataset_key(sha256), opened)
    except AppError:
        await admission.write(database, drop_reserved, name)
        raise
    return await admission.write(database, mark_stored, name)


def archive_limits(settings: Settings) -> dict[str, int]:
    """Return the limits of an archive, for the parsing process."""
    return {"files": tasks.MAX_FILES, "unpacked_bytes": settings.dataset_unpacked_mib << 20}


def _on_disk(file: UploadFile) -> IO[bytes]:
    """Return the received file as one that another process can be given."""
    spooled = file.file
    if isinstance(spooled, SpooledTemporaryFile):
        spooled.rollover()
    return spooled  # has what is used of a file


def _hash(file: IO[bytes]) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
