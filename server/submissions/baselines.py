"""The reference lines that a competition's file names, submitted once its splits are ready.

Each is a team of its own without members: it takes no quota and no rank. What is missing is looked for again and again,
so a file's line is submitted exactly once, whoever looks, and however often.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import structlog
from sqlalchemy.orm import Session

from lethe.competition.file import CompetitionFile
from lethe.competition.report_section import Baseline
from lethe.submission.package import load_package
from server.competitions import competition_repository, competitions
from server.competitions.stored_file import readable, stored_file
from server.db import Database
from server.models.account import Account
from server.models.competition import Competition, CompetitionState
from server.storage import Storage
from server.submissions import submission_repository
from server.submissions.submissions import create_submission
from server.submissions.upload_check import CheckedUpload, Upload, store_again_if_collected, store_content
from server.teams import teams

log = structlog.get_logger()


def submit_missing(database: Database, storage: Storage, *, at: datetime) -> int:
    """Submit what no competition has yet of its reference lines. Return how many. Safe to run twice, and at once."""
    with database.read() as session:
        competing = readable(competition_repository.taking_baselines(session, at))
        waiting = {competition.id: _missing(session, competition) for competition in competing}
    submitted = 0
    for competition_id, missing in waiting.items():
        uploads = [_stored(storage, baseline, at) for baseline in missing]
        submitted += _submit(database, competition_id, uploads) if uploads else 0
        for checked in uploads:
            store_again_if_collected(storage, checked)
    return submitted


def baseline_names(file: CompetitionFile) -> dict[str, str]:
    """Return what each reference line is called, by its label: its method, where that tells it from the others."""
    lines = {line.label: line.id for each in file.evaluated for line in each.report.baselines}
    times = Counter(lines.values())
    return {label: method if times[method] == 1 else label for label, method in lines.items()}


def _missing(session: Session, competition: Competition) -> list[Baseline]:
    file = stored_file(competition)
    wanted = () if file.tasks else file.report.baselines  # each task has its own
    known = submission_repository.baseline_messages(session, competition.id) if wanted else frozenset()
    return [baseline for baseline in wanted if baseline.label not in known]


def _stored(storage: Storage, baseline: Baseline, at: datetime) -> CheckedUpload:
    """Return a reference line's code, stored. It is our own text and no stranger's, so it is parsed here."""
    upload = Upload(f"{baseline.id}.py", baseline.source().encode(), baseline.label, received_at=at)
    package = load_package(upload.data, upload.filename)
    return CheckedUpload(upload, package.kind, store_content(storage, upload.data), package.entry_point.as_data())


def _submit(database: Database, competition_id: str, uploads: Sequence[CheckedUpload]) -> int:
    with database.write() as session:
        competition = competition_repository.locked_with_root(session, competition_id)
        if competition.state not in (CompetitionState.READY, CompetitionState.OPEN):
            return 0  # its file was replaced meanwhile, or it has closed
        organiser = session.get_one(Account, competition.created_by)
        known = submission_repository.baseline_messages(session, competition_id)
        new = [checked for checked in uploads if checked.upload.message not in known]
        names = baseline_names(stored_file(competitions.root(session, competition)))
        for checked in new:
            team = teams.add_baseline(
                session, competition, organiser, label=names.get(checked.upload.message, checked.upload.message)
            )
            create_submission(session, competition, team, organiser, checked, automatic=True)
    log.info("reference lines submitted", competition=competition.slug, submissions=len(new))
    return len(new)
