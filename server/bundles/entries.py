"""The submissions of a bundle: those that stand on a leaderboard, and those whose teams let the code be published."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from lethe.client.receipts import canonical
from lethe.competition.visibility import Visibility
from lethe.errors import NotFound
from server.bundles import bundle_repository
from server.competitions.stored_file import stored_file
from server.config import Settings
from server.downloads import HashedZip
from server.models.competition import Competition
from server.models.submission import Submission
from server.storage import Storage, content_key
from server.submissions import receipts, views

CODE, RECEIPTS = "code", "receipts"


def add_entries(
    session: Session,
    storage: Storage,
    settings: Settings,
    competition: Competition,
    *,
    boards: Sequence[Mapping[str, Any]],
    archive: HashedZip,
) -> list[dict[str, Any]]:
    """Put receipts, and the code that may be published, into the archive. Return the entries, the earliest first."""
    on_boards = {row["submission"] for board in boards for row in board["rows"] if row["submission"]}
    entries = []
    for submission in bundle_repository.published(session, competition.id, on_boards=on_boards):
        evaluated = views.view(session, [submission], ended_in_full=False)[0]
        parts = [
            _part(session, settings, view, archive=archive)
            for view in evaluated.parts or (evaluated,)
            if view.submission.id in on_boards or submission.publish_code
        ]
        code = _add_code(storage, submission, archive=archive) if submission.publish_code else None
        entries.append(
            {
                "id": submission.id,
                "team": submission.team.name,
                "is_baseline": submission.team.is_baseline,
                "received_at": submission.received_at.isoformat(),
                "phase": submission.phase,
                "is_official": submission.is_official,
                "mode": submission.entry_point.get("mode", "function"),
                "sha256": submission.content_sha256,
                "code": code,
                "filename": submission.filename if code else None,
                "parts": [part for part in parts if part["scores"]],
            }
        )
    return [entry for entry in entries if entry["parts"]]


def _part(session: Session, settings: Settings, view: views.SubmissionView, *, archive: HashedZip) -> dict[str, Any]:
    submission = view.submission
    shown = {Visibility.PUBLIC: view.score, Visibility.PRIVATE: view.private_score}
    scores = {}
    for visibility, score in shown.items():
        if score is None:
            continue
        try:
            receipt = receipts.issue(session, settings, submission, visibility, is_organiser=False)
        except NotFound:
            continue
        name = f"{RECEIPTS}/{submission.id}-{visibility.value}.json"
        archive.add(name, [canonical(receipt)], compress=True)
        scores[visibility.value] = {
            "final_score": score.final_score,
            "interval_low": score.interval_low,
            "interval_high": score.interval_high,
            "scorer_version": score.scorer_version,
            "runs": stored_file(submission.competition).n_models,
            "receipt": name,
        }
    return {"task": submission.competition.task_name or "", "submission": submission.id, "scores": scores}


def _add_code(storage: Storage, submission: Submission, *, archive: HashedZip) -> str | None:
    """Return the path of the code in the archive; None if it is no longer stored."""
    key = content_key(submission.content_sha256)
    if not storage.exists(key):
        return None
    suffix = "ipynb" if submission.filename.endswith(".ipynb") else submission.kind
    name = f"{CODE}/{submission.id}.{suffix}"
    if name not in archive.entries:
        archive.add(name, storage.chunks(key), compress=True)
    return name
