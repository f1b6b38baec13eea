"""Checks an upload without running it, in a process that can be killed, and stores it by its content."""

import hashlib
from dataclasses import dataclass
from datetime import datetime

from fastapi.concurrency import run_in_threadpool

from lethe.competition.file import Submissions
from lethe.errors import InvalidSubmission, Violation
from server.parsing.client import Unreadable, turns
from server.storage import Storage, content_key

FILENAME_LENGTH = 200
MESSAGE_LENGTH = 500


@dataclass(frozen=True)
class Upload:
    """A file that was received whole: `received_at` is when its last byte came."""

    filename: str
    data: bytes
    message: str
    received_at: datetime


@dataclass(frozen=True)
class CheckedUpload:
    """An upload that can be run, and lies in storage."""

    upload: Upload
    kind: str
    content_sha256: str
    entry_point: dict[str, object]


async def check_and_store(storage: Storage, upload: Upload, *, account_id: str, rules: Submissions) -> CheckedUpload:
    """Check an upload and store it. Raises InvalidSubmission, or RateLimited and HostFault if too many wait.

    account_id: who sends it. rules: what the competition takes.

    Needs no transaction. Content that is then refused for its quota stays until what nothing refers to is collected.
    """
    options = {"filename": upload.filename[-FILENAME_LENGTH:], "modes": list(rules.modes)}
    options["libraries"] = rules.libraries
    try:
        package = await turns().run("check_package", upload.data, account_id=account_id, options=options)
    except Unreadable as error:
        raise InvalidSubmission(error.detail, violations=(Violation("file", error.detail),)) from error
    sha256 = await run_in_threadpool(store_content, storage, upload.data)
    return CheckedUpload(upload, package["kind"], sha256, package["entry_point"])


def store_content(storage: Storage, data: bytes) -> str:
    """Store `data` under its own SHA-256. Return the hash."""
    sha256 = hashlib.sha256(data).hexdigest()
    storage.write(content_key(sha256), data)  # also if it is there: a fresh date keeps it from being collected
    return sha256


def store_again_if_collected(storage: Storage, checked: CheckedUpload) -> None:
    """Store the content once more if it is gone. To be called once the row that names it has committed.

    Collecting garbage looks at the rows, then removes: an older copy of the same content may be removed while a new
    submission of it is in between. From the commit on, whoever collects sees the row.
    """
    if not storage.exists(content_key(checked.content_sha256)):
        store_content(storage, checked.upload.data)
