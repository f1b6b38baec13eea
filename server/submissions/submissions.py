"""Submissions: taken whole or not at all, shown to their team, cancelled by it."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from lethe.errors import NotFound
from lethe.runtime.error_classes import log_as_sent
from server import audit
from server.competitions import competition_repository, competitions, lifecycle, participation
from server.competitions.lifecycle import Period
from server.datetime_format import duration, in_words
from server.db import DAY, clock_difference, now, start_of_day
from server.disclosure import gate
from server.errors import Conflict
from server.evaluations import evaluations, parts
from server.models.account import Account
from server.models.competition import Competition, Team
from server.models.submission import ENDED, Submission
from server.storage import Storage, content_key
from server.submissions import quota, submission_repository
from server.submissions.list_filter import Show
from server.submissions.quota import Quota
from server.submissions.upload_check import FILENAME_LENGTH, MESSAGE_LENGTH, CheckedUpload
from server.submissions.views import SubmissionView, view
from server.teams import team_repository, teams


def check_may_submit(session: Session, competition: Competition, account: Account, *, at: datetime) -> Quota:
    """Return the caller's quota before an upload is read. Raises NotAllowed, Conflict or QuotaExceeded."""
    participation.check_may_take_part(session, competition, account)
    at += clock_difference(session)
    check_open(competition, teams.get_team(session, competition, account), at)
    mine = get_quota(session, competition, account, at=at)
    quota.check(mine, at=at)
    return mine


def check_open(competition: Competition, team: Team | None, received_at: datetime) -> Period:
    """Return where what the team sent at that moment belongs. Raises Conflict if it is not taken."""
    lifecycle.require_no_task(competition)
    period = lifecycle.period_at(competition, team, received_at)
    if period is not None:
        return period
    if received_at < competition.opens_at:
        raise Conflict(f"{competition.slug} opens on {in_words(competition.opens_at)}")
    if received_at >= competition.closes_at:
        late = duration((received_at - competition.closes_at).total_seconds())
        raise Conflict(f"{competition.slug} closed on {in_words(competition.closes_at)}; the file came {late} later")
    raise Conflict(f"{competition.slug} is {competition.state} and takes no submissions")


def accept(session: Session, competition: Competition, account: Account, checked: CheckedUpload) -> SubmissionView:
    """Count a checked upload against the quota, store its row and queue its evaluation: all or nothing.

    Raises NotAllowed for who may not take part, Conflict after the deadline, or QuotaExceeded. The team's row is locked
    while counting, so that parallel uploads are counted one after the other.
    """
    upload = replace(checked.upload, received_at=checked.upload.received_at + clock_difference(session))
    checked = replace(checked, upload=upload)  # at the one clock that decides for all web servers
    competition = competition_repository.held(session, competition.id)
    participation.check_may_take_part(session, competition, account)
    check_open(competition, teams.get_team(session, competition, account), upload.received_at)
    team = team_repository.locked(session, teams.ensure(session, competition, account).id)
    if team.disqualified_at is not None:
        raise Conflict(f"The team {team.name!r} was disqualified")
    period = check_open(competition, team, upload.received_at)
    quota.check(quota.of(session, team, period=period, at=upload.received_at), at=upload.received_at)
    if checked.of_tasks:
        submission = _enter_into_tasks(session, competition, team, account, checked, period=period)
    else:
        submission = create_submission(session, competition, team, account, checked, period=period)
    return view(session, [_whole(session, submission.id)])[0]


def _enter_into_tasks(
    session: Session, competition: Competition, team: Team, account: Account, checked: CheckedUpload, *, period: Period
) -> Submission:
    """Store a submission's row, and for each task that it is for a part, which is what is evaluated."""
    whole = create_submission(session, competition, team, account, checked, period=period, is_evaluated=False)
    for task in competitions.tasks(session, competition):
        entry_point = checked.of_tasks.get(str(task.task_name))
        if entry_point is not None:
            of_task = replace(checked, entry_point=entry_point, of_tasks={})
            create_submission(session, task, team, account, of_task, period=period, parent_id=whole.id)
    return whole


def create_submission(
    session: Session,
    competition: Competition,
    team: Team,
    account: Account,
    checked: CheckedUpload,
    *,
    period: Period | None = None,
    automatic: bool = False,
    parent_id: str | None = None,
    is_evaluated: bool = True,
) -> Submission:
    """Store a submission's row and queue its evaluation. automatic: no upload. period: None: in no phase."""
    upload = checked.upload
    submission = Submission(
        competition_id=competition.id,
        parent_id=parent_id,
        team_id=team.id,
        account_id=account.id,
        filename=upload.filename[-FILENAME_LENGTH:],
        kind=checked.kind,
        content_sha256=checked.content_sha256,
        size_bytes=len(upload.data),
        entry_point=checked.entry_point,
        message=upload.message[:MESSAGE_LENGTH],
        received_at=upload.received_at,
        phase=period.name if period else "",
        is_official=period.counts if period else True,
    )
    session.add(submission)
    session.flush()
    sent = {"sha256": submission.content_sha256, "bytes": submission.size_bytes}
    data = {"team": team.id, "phase": submission.phase, **sent}
    audit.record(session, None if automatic else account, "submission.received", submission, data=data)
    if is_evaluated:
        split = competitions.get_split(session, competition, Visibility.PUBLIC)
        evaluations.start(session, submission, split, smoke=True)
        session.flush()
    return submission


def get_quota(session: Session, competition: Competition, account: Account, *, at: datetime) -> Quota:
    """Return what the caller's team has left."""
    return quota_of_team(session, competition, teams.get_team(session, competition, account), at=at)


def quota_of_team(session: Session, competition: Competition, team: Team | None, *, at: datetime) -> Quota:
    """Return what a team has left, or one that has submitted nothing yet."""
    return quota.of(session, team, period=lifecycle.shown_period(competition, team, at), at=at)


def get_own(session: Session, submission_id: str, account: Account) -> Submission:
    """Return a submission of the caller's team, or of a competition they organise. Raises NotFound for others."""
    submission = submission_repository.by_id(session, submission_id)
    if submission is None or not _may_see(session, submission, account):
        raise NotFound(f"You have no submission {submission_id!r}")
    return submission


def get_of_my_team(session: Session, submission_id: str, account: Account) -> Submission:
    """Return a submission of the caller's team: what only its members may do. Raises NotFound."""
    submission = submission_repository.by_id(session, submission_id)
    if submission is None or not submission_repository.is_member(
        session, team_id=submission.team_id, account_id=account.id
    ):
        raise NotFound(f"You have no submission {submission_id!r}")
    return submission


def of_competition(session: Session, competition: Competition, submission_id: str) -> Submission:
    """Return any team's submission to a competition or to a task of it, for its organisers. Raises NotFound."""
    submission = submission_repository.by_id(session, submission_id)
    if submission is None or competition.id not in (submission.competition_id, submission.competition.root_id):
        raise NotFound(f"{competition.slug} has no submission {submission_id!r}")
    return submission


def list_own(session: Session, competition: Competition, account: Account) -> Sequence[Submission]:
    """Return the submissions of the caller's team, the newest first."""
    team = teams.get_team(session, competition, account)
    return submission_repository.of_team(session, team.id, competition_id=competition.id) if team else []


def page_of_team(
    session: Session,
    competition: Competition,
    team: Team | None,
    *,
    show: Show,
    final_ids: Collection[str],
    offset: int,
    limit: int,
) -> Sequence[Submission]:
    """Return some lines of a team's list. Raises NotFound for the best ones while a ladder is shown."""
    check_order(competition, show)
    if team is None:
        return []
    return submission_repository.page_of_team(
        session, team.id, competition_id=competition.id, show=show, final_ids=final_ids, offset=offset, limit=limit
    )


def check_order(competition: Competition, show: Show) -> None:
    """Raise NotFound for an order that tells what the ladder hides."""
    if show is Show.BEST and gate.shows_ladder(competition):
        raise NotFound(f"{competition.slug} has a ladder, which does not tell which of your submissions are the best")


def cancel(session: Session, submission: Submission, *, actor: Account) -> Submission:
    """Stop a submission. Before its first run began, it does not count against the quota.

    A team gets back at most as many a day as it may send: sending costs the host something, whatever becomes of it.
    Raises Conflict where only what organisers had run again has not ended: that is theirs to cancel.
    """
    team_repository.locked(session, submission.team_id)
    own = parts.locked(session, submission.id)
    submission = (
        submission if own else submission_repository.locked(session, submission.id)
    )  # with parts it is locked last
    if submission.stage in ENDED:
        raise Conflict(f"The submission is {submission.stage}; only one that has not ended can be cancelled")
    sent = evaluations.cancellable(session, own or [submission])
    if not sent:
        raise Conflict("The organisers have this submission run again; only they can cancel that")
    costs = cancelling_costs(session, submission)
    for each in sent:
        evaluations.cancel(session, each, refunded=not costs)
    session.flush()
    audit.record(session, actor, "submission.cancelled", submission, data={"refunded": not costs})
    if submission.stage not in ENDED:
        parts.follow(session, submission.id)
    session.flush()
    return _whole(session, submission.id)


def cancelling_costs(session: Session, submission: Submission) -> str:
    """Return why cancelling now counts against the quota: `started`, `taken-back`; empty if it does not."""
    if evaluations.runs_started(session, submission):
        return "started"
    return "" if _may_take_back(session, submission) else "taken-back"


def _may_take_back(session: Session, submission: Submission) -> bool:
    day = start_of_day(now())
    taken_back = submission_repository.count_taken_back(session, submission.team_id, since=day, before=day + DAY)
    competition = competition_repository.held(session, submission.competition_id)
    return taken_back < lifecycle.period_of(competition, submission.phase).per_day


def read_code(storage: Storage, submission: Submission) -> bytes:
    """Return the file as it was received."""
    return storage.read_verified(content_key(submission.content_sha256), submission.content_sha256)


def sample_log(session: Session, submission: Submission) -> str:
    """Return what the runs on the public sample printed, with the file under its author's name."""
    log = "".join(log.text for log in submission_repository.public_sample_logs(session, submission.id))
    return log_as_sent(log, submission.filename)


def _may_see(session: Session, submission: Submission, account: Account) -> bool:
    if submission_repository.is_member(session, team_id=submission.team_id, account_id=account.id):
        return True
    return competitions.is_organiser(session, submission.competition, account)


def _whole(session: Session, submission_id: str) -> Submission:
    submission = submission_repository.by_id(session, submission_id)
    if submission is None:
        raise NotFound(f"There is no submission {submission_id!r}")
    return submission
