"""Submissions: taken whole or not at all, shown to their team, cancelled by it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain

from sqlalchemy.orm import Session

from lethe.competition.visibility import Visibility
from lethe.errors import NotFound
from lethe.runtime.sent_names import log_as_sent
from server.audit import log as audit
from server.competitions import lifecycle, participation, phases
from server.competitions import repository as competition_repository
from server.competitions import service as competitions
from server.competitions.phases import Period
from server.competitions.stored_file import stored_file
from server.datetime_format import duration, in_words
from server.db import clock_difference, now
from server.disclosure import gate
from server.disclosure.gate import ShownNumber, ShownPaired, ShownScore
from server.disclosure.shown_progress import shown_progress
from server.errors import Conflict
from server.evaluations import paired_test, parts
from server.evaluations import service as evaluations
from server.evaluations.progress import EvaluationProgress
from server.finals import service as finals
from server.leaderboard import combined_entries
from server.leaderboard import service as boards
from server.models.account import Account
from server.models.competition import Competition, Team
from server.models.submission import ENDED, Submission
from server.storage import Storage, content_key
from server.submissions import quota, repository
from server.submissions.list_filter import Show
from server.submissions.quota import Quota
from server.submissions.upload_check import FILENAME_LENGTH, MESSAGE_LENGTH, CheckedUpload
from server.teams import repository as team_repository
from server.teams import service as teams
from server.utc_days import DAY, start_of_day

MOST_UNFINISHED = 10


@dataclass(frozen=True)
class SubmissionView:
    """A submission as its team may see it.

    parts: what became of it in each task; none without tasks. combined: what its own public scores come to; None where
    the rule needs other teams' scores.
    """

    submission: Submission
    progress: EvaluationProgress | None
    score: ShownScore | None
    can_cancel: bool
    private_score: ShownScore | None = None  # once revealed
    parts: tuple["SubmissionView", ...] = ()
    combined: ShownNumber | None = None


def check_may_submit(session: Session, competition: Competition, account: Account, *, at: datetime) -> Quota:
    """Return the caller's quota. Raises NotAllowed, Conflict or QuotaExceeded as `accept` would at this moment.

    Asked before an upload is read; what decides is `accept`.
    """
    participation.check_may_take_part(session, competition, account)
    at += clock_difference(session)
    check_open(competition, teams.get_team(session, competition, account), at)
    mine = get_quota(session, competition, account, at=at)
    quota.check(mine, at=at)
    return mine


def check_open(competition: Competition, team: Team | None, received_at: datetime) -> Period:
    """Return where what the team sent at that moment belongs. Raises Conflict if it is not taken."""
    lifecycle.require_no_task(competition)
    period = phases.period_at(competition, team, received_at)
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
    _check_team(team)
    period = check_open(competition, team, upload.received_at)
    quota.check(quota.of(session, team, period=period, at=upload.received_at), at=upload.received_at)
    if checked.of_tasks:
        submission = _enter_into_tasks(session, competition, team, account, checked, period=period)
    else:
        submission = enter(session, competition, team, account, checked, period=period)
    return view(session, [_whole(session, submission.id)])[0]


def _enter_into_tasks(
    session: Session, competition: Competition, team: Team, account: Account, checked: CheckedUpload, *, period: Period
) -> Submission:
    """Store a submission's row, and for each task that it is for a part, which is what is evaluated."""
    whole = _store(session, competition, team, account, checked, period=period)
    for task in competitions.tasks(session, competition):
        entry_point = checked.of_tasks.get(str(task.task_name))
        if entry_point is not None:
            of_task = replace(checked, entry_point=entry_point, of_tasks={})
            enter(session, task, team, account, of_task, period=period, parent_id=whole.id)
    return whole


def enter(
    session: Session,
    competition: Competition,
    team: Team,
    account: Account,
    checked: CheckedUpload,
    *,
    period: Period | None = None,
    by_itself: bool = False,
    parent_id: str | None = None,
) -> Submission:
    """Store a submission's row and queue its evaluation. by_itself: nobody sent it; the account answers for it.

    period: where it belongs; None: it counts, in no phase. parent_id: of the submission that this one is a part of.
    """
    submission = _store(
        session, competition, team, account, checked, period=period, by_itself=by_itself, parent_id=parent_id
    )
    split = competitions.get_split(session, competition, Visibility.PUBLIC)
    evaluations.start(session, submission, split, smoke=True)
    session.flush()
    return submission


def _store(
    session: Session,
    competition: Competition,
    team: Team,
    account: Account,
    checked: CheckedUpload,
    *,
    period: Period | None = None,
    by_itself: bool = False,
    parent_id: str | None = None,
) -> Submission:
    """Store a submission's row. period: where it belongs; None: it counts, in no phase."""
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
    audit.record(
        session,
        None if by_itself else account,
        "submission.received",
        competition=competition,
        subject=submission.id,
        data={"team": team.id, "phase": submission.phase, "sha256": checked.content_sha256, "bytes": len(upload.data)},
    )
    return submission


def get_quota(session: Session, competition: Competition, account: Account, *, at: datetime) -> Quota:
    """Return what the caller's team has left."""
    return quota_of_team(session, competition, teams.get_team(session, competition, account), at=at)


def quota_of_team(session: Session, competition: Competition, team: Team | None, *, at: datetime) -> Quota:
    """Return what a team has left, or one that has submitted nothing yet."""
    return quota.of(session, team, period=phases.shown_period(competition, team, at), at=at)


def get_own(session: Session, submission_id: str, account: Account) -> Submission:
    """Return a submission of the caller's team, or of a competition that they organise. Raises NotFound.

    Another team's submission and none at all are the same answer.
    """
    submission = repository.by_id(session, submission_id)
    if submission is None or not _may_see(session, submission, account):
        raise NotFound(f"You have no submission {submission_id!r}")
    return submission


def get_of_my_team(session: Session, submission_id: str, account: Account) -> Submission:
    """Return a submission of the caller's team: what only its members may do. Raises NotFound."""
    submission = repository.by_id(session, submission_id)
    if submission is None or not repository.is_member(session, team_id=submission.team_id, account_id=account.id):
        raise NotFound(f"You have no submission {submission_id!r}")
    return submission


def of_competition(session: Session, competition: Competition, submission_id: str) -> Submission:
    """Return any team's submission to a competition or to a task of it, for its organisers. Raises NotFound."""
    submission = repository.by_id(session, submission_id)
    if submission is None or competition.id not in (submission.competition_id, submission.competition.root_id):
        raise NotFound(f"{competition.slug} has no submission {submission_id!r}")
    return submission


def list_own(session: Session, competition: Competition, account: Account) -> Sequence[Submission]:
    """Return the submissions of the caller's team, the newest first."""
    team = teams.get_team(session, competition, account)
    return repository.of_team(session, team.id, competition_id=competition.id) if team else []


def list_unfinished(session: Session, account: Account) -> list[SubmissionView]:
    """Return what of the account's teams has not ended, in all competitions, the newest first; at most ten."""
    return view(session, repository.unfinished_of_account(session, account.id, limit=MOST_UNFINISHED))


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
    """Return some lines of a list of a team's submissions. final_ids: those that `Show.FINALS` stands for.

    Raises NotFound for the best ones while the ladder is shown: their order would tell what it hides.
    """
    check_order(competition, show)
    if team is None:
        return []
    return repository.page_of_team(
        session,
        team.id,
        competition_id=competition.id,
        show=show,
        final_ids=final_ids,
        offset=offset,
        limit=limit,
    )


def check_order(competition: Competition, show: Show) -> None:
    """Raise NotFound for an order that tells what the ladder hides."""
    if show is Show.BEST and gate.shows_ladder(competition):
        raise NotFound(f"{competition.slug} has a ladder, which does not tell which of your submissions are the best")


def view(
    session: Session, submissions: Sequence[Submission], *, ended_in_full: bool = True, exact: bool = False
) -> list[SubmissionView]:
    """Return what the teams may see of their submissions, in the same order.

    ended_in_full: whether also how those went that have ended, which a list does not tell and which costs the most.
    exact: with the progress as it is, which only organisers may see.
    """
    found = parts.of(session, [each.id for each in submissions if stored_file(each.competition).tasks])
    views = _views(session, [*submissions, *chain(*found.values())], ended_in_full=ended_in_full, exact=exact)
    of_parts = dict(zip((part.id for part in chain(*found.values())), views[len(submissions) :], strict=True))
    return [
        _with_parts(view, [of_parts[part.id] for part in found.get(view.submission.id, ())])
        for view in views[: len(submissions)]
    ]


def _with_parts(view: SubmissionView, of_parts: Sequence[SubmissionView]) -> SubmissionView:
    """Return a submission with its parts: the runs that are done are those of all of them."""
    if not of_parts:
        return view
    combined = combined_entries.of_one(
        {str(part.submission.competition.task_name): part.score.final_score for part in of_parts if part.score},
        stored_file(view.submission.competition),
    )
    view = replace(view, parts=tuple(of_parts), combined=combined)
    known = [part.progress for part in of_parts if part.progress]
    if not known:
        return view
    together = EvaluationProgress(
        runs_done=sum(progress.runs_done for progress in known),
        runs_total=sum(progress.runs_total for progress in known),
        elapsed_s=None,
        remaining_s=None,
        attempts=(),
    )
    return replace(view, progress=together)


def _views(
    session: Session, submissions: Sequence[Submission], *, ended_in_full: bool, exact: bool
) -> list[SubmissionView]:
    ids = [submission.id for submission in submissions if ended_in_full or submission.stage not in ENDED]
    progress = evaluations.progress(session, ids)
    if not exact:
        ended = {submission.id for submission in submissions if submission.stage in ENDED}
        progress = {key: shown_progress(found, is_over=key in ended, at=now()) for key, found in progress.items()}
    scores = _public_scores(session, submissions)
    revealed = finals.revealed_scores(session, submissions)
    return [
        SubmissionView(
            submission=submission,
            progress=progress.get(submission.id),
            score=scores.get(submission.id),
            can_cancel=submission.stage not in ENDED,
            private_score=gate.score(revealed[submission.id], submission.competition)
            if submission.id in revealed
            else None,
        )
        for submission in submissions
    ]


def compare_own(session: Session, first: Submission, second: Submission) -> ShownPaired | None:
    """Compare two public scores of one team by the paired test; None where intervals are not shown, or there is none.

    Raises NotFound for submissions of two teams.
    """
    if first.team_id != second.team_id:
        raise NotFound("The two submissions are of two teams")
    metric = stored_file(first.competition).scoring
    found = repository.public_scores(session, [first.id, second.id])
    if not metric.show_intervals or gate.shows_ladder(first.competition) or not {first.id, second.id} <= set(found):
        return None
    a, b = found[first.id], found[second.id]
    try:
        return gate.paired(paired_test.compare(a.final_score, b.final_score, replicates=(a.replicates, b.replicates)))
    except Conflict:  # no replicates, or of another kind
        return None


def cancel(session: Session, submission: Submission, *, actor: Account) -> Submission:
    """Stop a submission. Before its first run began, it does not count against the quota.

    A team gets back at most as many a day as it may send: sending costs the host something, whatever becomes of it.
    """
    team_repository.locked(session, submission.team_id)
    own = parts.locked(session, submission.id)
    submission = submission if own else repository.locked(session, submission.id)  # with parts it is locked last
    if submission.stage in ENDED:
        raise Conflict(f"The submission is {submission.stage}; only one that has not ended can be cancelled")
    costs = cancelling_costs(session, submission)
    for each in own or [submission]:
        if each.stage not in ENDED:
            evaluations.cancel(session, each)
            each.refunded = not costs
    session.flush()
    audit.record(
        session,
        actor,
        "submission.cancelled",
        competition=submission.competition_id,
        subject=submission.id,
        data={"refunded": not costs},
    )
    if submission.stage not in ENDED:
        parts.follow(session, submission.id)
    session.flush()
    return _whole(session, submission.id)


def cancelling_costs(session: Session, submission: Submission) -> str:
    """Return why a submission would count against the quota if it were cancelled now; empty if it would not.

    started: a run of it has begun. taken-back: as many of today's were taken back as may be sent.
    """
    if evaluations.runs_started(session, submission):
        return "started"
    return "" if _may_take_back(session, submission) else "taken-back"


def _may_take_back(session: Session, submission: Submission) -> bool:
    day = start_of_day(now())
    taken_back = repository.count_taken_back(session, submission.team_id, since=day, before=day + DAY)
    competition = competition_repository.held(session, submission.competition_id)
    return taken_back < phases.period_of(competition, submission.phase).per_day


def read_code(storage: Storage, submission: Submission) -> bytes:
    """Return the file as it was received."""
    return storage.read_verified(content_key(submission.content_sha256), submission.content_sha256)


def sample_log(session: Session, submission: Submission) -> str:
    """Return what the runs on the public sample printed, with the file under its author's name."""
    log = "".join(log.text for log in repository.public_sample_logs(session, submission.id))
    return log_as_sent(log, submission.filename)


def _check_team(team: Team) -> None:
    if team.disqualified_at is not None:
        raise Conflict(f"The team {team.name!r} was disqualified")


def _may_see(session: Session, submission: Submission, account: Account) -> bool:
    if repository.is_member(session, team_id=submission.team_id, account_id=account.id):
        return True
    return competitions.is_organiser(session, submission.competition, account)


def _whole(session: Session, submission_id: str) -> Submission:
    submission = repository.by_id(session, submission_id)
    if submission is None:
        raise NotFound(f"There is no submission {submission_id!r}")
    return submission


def _public_scores(session: Session, submissions: Sequence[Submission]) -> dict[str, ShownScore]:
    """Return the public score of each submission as its team may see it, by submission id."""
    found = repository.public_scores(session, [submission.id for submission in submissions])
    scored = [submission for submission in submissions if submission.id in found]
    on_ladder = [submission for submission in scored if gate.shows_ladder(submission.competition)]
    rungs: dict[str, float] = {}
    for competition in {s.competition_id: s.competition for s in on_ladder}.values():
        team_ids = {s.team_id for s in on_ladder if s.competition_id == competition.id}
        rungs |= boards.ladder_scores(session, competition, list(team_ids))
    # What is not on the ladder, because it was disqualified, has no score there.
    shown = [s for s in scored if s.id in rungs or s not in on_ladder]
    return {s.id: gate.score(found[s.id], s.competition, rung=rungs.get(s.id)) for s in shown}
