"""Checks an upload without running it, in a process that can be killed, and stores it by its content."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache

from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request

from lethe.competition.file import CompetitionFile
from lethe.competition.sections import Submissions
from lethe.competition.task import task_name
from lethe.errors import InvalidSubmission, Violation
from server.accounts.rate_limit import Throttle
from server.config import Settings
from server.db import now
from server.parsing.client import Unreadable, turns
from server.received_form import get_too_large, received_form
from server.storage import Storage, content_key

FILENAME_LENGTH = 200
MESSAGE_LENGTH = 500
MAX_REQUEST_BYTES = 2 << 30  # no competition's own limit goes beyond
WHAT = "A submission"
WINDOW_S = 600


@dataclass(frozen=True)
class Upload:
    """A file that was received whole: `received_at` is when its last byte came."""

    filename: str
    data: bytes
    message: str
    received_at: datetime
    tasks: tuple[str, ...] = ()  # that it is for, by name; none: all


@dataclass(frozen=True)
class CheckedUpload:
    """An upload that can be run, and lies in storage. of_tasks: its entry point by the task's name."""

    upload: Upload
    kind: str
    content_sha256: str
    entry_point: dict[str, object]
    of_tasks: Mapping[str, dict[str, object]] = field(default_factory=dict)


async def check_for(storage: Storage, upload: Upload, *, account_id: str, file: CompetitionFile) -> CheckedUpload:
    """Check an upload for each task that it names, and store it. Raises what `check_and_store` does."""
    tasks = {task_name(task.slug): task for task in file.tasks}
    if unknown := [name for name in upload.tasks if name not in tasks]:
        allowed = f"must be of {', '.join(tasks)}" if tasks else "cannot be named: the competition has no tasks"
        raise InvalidSubmission(f"tasks {allowed}", violations=(Violation("tasks", allowed, unknown[0][:80]),))
    if not tasks:
        return await check_and_store(storage, upload, account_id=account_id, rules=file.submissions)
    checks = [
        (name, await check_and_store(storage, upload, account_id=account_id, rules=task.submissions, task=name))
        for name, task in tasks.items()
        if name in upload.tasks or not upload.tasks
    ]
    return replace(checks[0][1], of_tasks={name: checked.entry_point for name, checked in checks})


async def check_and_store(
    storage: Storage, upload: Upload, *, account_id: str, rules: Submissions, task: str = ""
) -> CheckedUpload:
    """Check an upload and store it. Raises InvalidSubmission, or RateLimited and HostFault if too many wait.

    account_id: who sends it. rules: what the competition takes. task: the name of the task that it is checked for.

    Needs no transaction. Content that is then refused for its quota stays until what nothing refers to is collected.
    """
    options = {"filename": upload.filename[-FILENAME_LENGTH:], "modes": list(rules.modes)}
    options |= {"libraries": rules.libraries, "task_name": task}
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
    """Store the content again if garbage collection took it before its row was committed."""
    if not storage.exists(content_key(checked.content_sha256)):
        store_content(storage, checked.upload.data)


async def receive(request: Request, *, limit_mib: int) -> Upload:
    """Return the form's file and message. Raises TooLarge as soon as it is, UnsupportedMedia or InvalidSubmission."""
    async with received_form(request, limit_mib=limit_mib, what=WHAT, refusal=InvalidSubmission) as form:
        received_at = now()
        return await _upload(form, limit_mib=limit_mib, received_at=received_at)


async def _upload(form: FormData, *, limit_mib: int, received_at: datetime) -> Upload:
    file, message = form.get("file"), form.get("message") or ""
    if not isinstance(file, UploadFile):
        missing = "the field `file` is missing, is not a file, or was cut off"
        raise InvalidSubmission(f"The form is not whole: {missing}", violations=(Violation("file", missing),))
    if isinstance(message, UploadFile) or len(message) > MESSAGE_LENGTH:
        allowed = f"has at most {MESSAGE_LENGTH} characters of text"
        raise InvalidSubmission(f"The message {allowed}", violations=(Violation("message", allowed),))
    if file.size is not None and file.size > limit_mib << 20:
        raise get_too_large(WHAT, limit_mib)
    return Upload(
        filename=base_name(file.filename or ""),
        data=await file.read(),
        message=message,
        received_at=received_at,
        tasks=tasks_of(form),
    )


def tasks_of(form: FormData) -> tuple[str, ...]:
    """Return the tasks that a form names: one field for each, or several in one with commas between."""
    texts = [value for value in form.getlist("tasks") if isinstance(value, str)]
    return tuple(dict.fromkeys(name.strip() for text in texts for name in text.split(",") if name.strip()))


def base_name(filename: str) -> str:
    """Return the last component of what a client calls its file, without what a terminal or header would obey."""
    base = filename.replace("\\", "/").rsplit("/", 1)[-1]
    return "".join(c if c.isprintable() and c != '"' else "_" for c in base)[-FILENAME_LENGTH:] or "unnamed"


def take(settings: Settings, account_id: str) -> None:
    """Count one upload. Raises RateLimited, saying when to come back."""
    if settings.uploads_per_10_min:
        throttle(settings.uploads_per_10_min).take(account_id)


@lru_cache
def throttle(limit: int) -> Throttle:
    """Return this process's count of uploads."""
    return Throttle(limit, window_s=WINDOW_S, what="files were sent")
