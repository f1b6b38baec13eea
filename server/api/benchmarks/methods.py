"""A benchmark's methods: their files, checked without being run."""

from lethe.competition.sections import Submissions
from lethe.errors import InvalidSubmission
from server.api.benchmarks.schemas import MethodIn
from server.benchmarks.units import MethodRecord
from server.db import now
from server.storage import Storage
from server.submissions.upload_check import Upload, check_and_store


async def checked(storage: Storage, method: MethodIn, *, account_id: str) -> MethodRecord:
    """Return a method that can be run. Raises InvalidSubmission naming it, its line and what is wrong there."""
    upload = Upload("unlearning.py", method.source.encode(), method.name, received_at=now())
    try:
        found = await check_and_store(storage, upload, account_id=account_id, rules=Submissions())
    except InvalidSubmission as error:
        raise InvalidSubmission(f"method {method.name!r}: {error.detail}", violations=error.violations) from error
    return MethodRecord(
        name=method.name,
        source=method.source,
        sha256=found.content_sha256,
        kind=found.kind,
        entry_point=found.entry_point,
        id=method.id,
        constants=method.constants,
    )
