"""What organisers may do to submissions and teams, in every state, and administrators to accounts: each act with a
reason, each recorded. Decisions about failed finals. The administrators' list of accounts."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from lethe.competition.visibility import Visibility
from lethe.errors import InvalidInput, NotFound, Violation
from server import audit
from server.accounts import accounts
from server.admin.competition_edits import may_change
from server.competitions import competition_repository, competitions, lifecycle
from server.datetime_format import in_words
from server.db import now
from server.errors import Conflict
from server.evaluations import evaluation_repository, evaluations, parts, rerun
from server.finals import finals, finals_repository
from server.models.account import Account, Role
from server.models.competition import Competition, CompetitionOrganiser, CompetitionState, Membership, Team
from server.models.evaluation import Evaluation
from server.models.submission import ENDED, Stage, Submission
from server.notifications import dispatch, notification_repository
from server.queue import GROUP_TIES, send_after_commit
from server.submissions import submission_repository
from server.teams import team_repository, teams


def exclude_final(session: Session, submission: Submission, *, actor: Account, reason: str) -> None:
    """Decide that a failed final is not on the private board."""
    competition = _locked_for_decision(session, submission)
    _exclude(session, competition, submission, actor=actor, reason=reason)
    _advance_again(session, competition)


def use_next_choice(session: Session, submission: Submission, *, actor: Account, reason: str) -> Submission:
    """Decide that the team's next best submission takes a failed final's place. Raises Conflict if there is none."""
    competition = _locked_for_decision(session, submission)
    if competition.parent_id is not None:
        raise Conflict(
            f"{submission.id} is a part of {submission.parent_id}, which was chosen for all its tasks: exclude it from "
            f"{competition.task_name}, or run it again"
        )
    others = finals_repository.candidates(session, competition.id, team_id=submission.team_id)
    rest = [c for c in others if not c.selected and c.submission_id != submission.id]
    if not rest:
        raise Conflict(f"The team has no other scored submission; exclude {submission.id} or run it again")
    _exclude(session, competition, submission, actor=actor, reason=reason)
    following = session.get_one(Submission, rest[0].submission_id)
    following.selected = True
    audit.record(session, actor, "final.replaced", following, reason=reason, data={"instead_of": submission.id})
    session.flush()
    _advance_again(session, competition)
    return following


def run_final_again(session: Session, submission: Submission, *, actor: Account, reason: str) -> Evaluation:
    """Decide that a failed final is evaluated on the private split once more."""
    competition = _locked_for_decision(session, submission)
    split = competitions.get_split(session, competition, Visibility.PRIVATE)
    evaluation = rerun.instead(session, submission, split)
    audit.record(session, actor, "final.run_again", competition=competition, subject=submission.id, reason=reason)
    return evaluation


def rescore_final(
    session: Session, competition: Competition, submission: Submission, *, actor: Account, reason: str
) -> Evaluation:
    """Evaluate a final on the private split again, at any time before the reveal. The caller holds the row lock."""
    if competitions.tasks(session, competition):
        raise Conflict(f"{submission.id} has parts, one for each task; run a part again")
    if competition.frozen_at is None or lifecycle.is_revealed(competition):
        raise Conflict(f"{competition.slug} is {competition.state}; finals are run again between close and reveal")
    if submission.id not in {final.id for final in finals_repository.finals(session, competition.id)}:
        raise Conflict(f"{submission.id} is not a final")
    evaluation = rerun.instead(session, submission, competitions.get_split(session, competition, Visibility.PRIVATE))
    audit.record(session, actor, "final.run_again", competition=competition, subject=submission.id, reason=reason)
    for each in (competitions.root(session, competition), competition):
        if each.state == CompetitionState.PROVISIONAL:
            lifecycle.move(session, each, CompetitionState.CLOSED, actor=actor, reason=reason)
    return evaluation


def _locked_for_decision(session: Session, submission: Submission) -> Competition:
    competition = competition_repository.locked_with_root(session, submission.competition_id)
    if competitions.tasks(session, competition):
        raise Conflict(f"{submission.id} has parts, one for each task; decide on the part that failed")
    if competition.state != CompetitionState.CLOSED or competition.frozen_at is None:
        raise Conflict(f"{competition.slug} is {competition.state}; decisions are taken while finals are re-scored")
    split = competitions.get_split(session, competition, Visibility.PRIVATE)
    evaluation = finals_repository.current_evaluations(session, [submission.id], split.id).get(submission.id)
    if (
        not submission.selected
        or submission.excluded_at is not None
        or not evaluations.needs_decision(session, evaluation)
    ):
        raise Conflict(f"{submission.id} is not a final that has failed")
    return competition


def _exclude(
    session: Session, competition: Competition, submission: Submission, *, actor: Account, reason: str
) -> None:
    submission.excluded_at = now()
    audit.record(session, actor, "final.excluded", competition=competition, subject=submission.id, reason=reason)
    session.flush()


def _advance_again(session: Session, competition: Competition) -> None:
    finals.advance(session, competitions.root(session, competition), at=now())


PAGE_SIZE = 100


@dataclass(frozen=True)
class ListedAccount:
    """An account, how many competitions it organises and of how many teams it is a member."""

    account: Account
    organises: int
    teams: int


def find_accounts(
    session: Session, *, query: str, role: str, only_banned: bool, page: int
) -> tuple[list[ListedAccount], bool]:
    """Return a page (from 1) of accounts by name, and whether there is another. query: part of name or address."""
    statement = select(Account).order_by(Account.name_key)
    if wanted := query.strip().casefold():
        in_name = Account.name_key.contains(wanted, autoescape=True)
        statement = statement.where(or_(in_name, Account.email.contains(wanted, autoescape=True)))
    if role:
        statement = statement.where(Account.role == role)
    if only_banned:
        statement = statement.where(Account.disabled_at.is_not(None))
    accounts = session.scalars(statement.offset((page - 1) * PAGE_SIZE).limit(PAGE_SIZE + 1)).all()
    ids = [account.id for account in accounts]
    organises = _counted(session, CompetitionOrganiser.account_id, ids)
    teams = _counted(session, Membership.account_id, ids)
    listed = [ListedAccount(account, organises.get(account.id, 0), teams.get(account.id, 0)) for account in accounts]
    return listed[:PAGE_SIZE], len(listed) > PAGE_SIZE


def _counted(session: Session, column: InstrumentedAttribute[str], ids: Sequence[str]) -> dict[str, int]:
    """Return how many rows name each account. One pass over the table: neither has an index by account."""
    return dict(session.execute(select(column, func.count()).where(column.in_(ids)).group_by(column)).all())


RUN_AGAIN = (*ENDED, Stage.SCORING)  # one that cannot be scored must not wait for ever


def cancel(session: Session, submission: Submission, *, actor: Account, reason: str) -> None:
    """Stop a submission, or the re-run of one. An organiser's act never costs the team its quota."""
    team_repository.locked(session, submission.team_id)
    own = parts.locked(session, submission.id)
    submission = submission if own else submission_repository.locked(session, submission.id)
    if submission.stage in ENDED:
        raise Conflict(f"The submission is {submission.stage}; only one that has not ended can be cancelled")
    for each in own or [submission]:
        evaluations.cancel(session, each, refunded=True)
    if own:
        parts.follow(session, submission.id)
    audit.record(session, actor, "submission.cancelled", submission, reason=reason)


def run_again(session: Session, submission: Submission, *, visibility: Visibility, actor: Account, reason: str) -> None:
    """Evaluate a submission again on one split; the old score is kept, and counts no longer."""
    competition = competition_repository.locked_with_root(session, submission.competition_id)
    if competitions.tasks(session, competition):
        raise Conflict(f"{submission.id} has parts, one for each task; run a part again")
    submission = submission_repository.locked(session, submission.id)
    if visibility is Visibility.PRIVATE:
        rescore_final(session, competition, submission, actor=actor, reason=reason)
        return
    if submission.stage not in RUN_AGAIN:
        raise Conflict(f"The submission is {submission.stage}; it can be run again once its runs have ended")
    if lifecycle.is_revealed(competition):
        raise Conflict(f"{competition.slug} is {competition.state}; re-judge it instead")
    rerun.instead(session, submission, competitions.get_split(session, competition, Visibility.PUBLIC))
    audit.record(session, actor, "submission.run_again", submission, reason=reason)


def confirm(session: Session, submission: Submission, *, visibility: Visibility, actor: Account, reason: str) -> None:
    """Confirm an unconfirmed score, so that it is ranked. Scores of other evaluations are confirmed separately."""
    if competitions.tasks(session, session.get_one(Competition, submission.competition_id)):
        raise Conflict(f"{submission.id} has parts, one for each task; confirm the score of a part")
    submission = submission_repository.locked(session, submission.id)
    evaluation = evaluation_repository.current_evaluation(session, submission.id, visibility.value)
    score = None if evaluation is None else evaluation_repository.get_score(session, evaluation, visibility.value)
    if evaluation is None or score is None or not score.is_unconfirmed:
        raise Conflict(f"{submission.id} has no unconfirmed score on the {visibility} split")
    score.is_unconfirmed = False
    data = {"split": visibility.value, "evaluation": evaluation.id}
    audit.record(session, actor, "submission.confirmed", submission, reason=reason, data=data)
    send_after_commit(session, GROUP_TIES, evaluation.split_id)


def disqualify(session: Session, submission: Submission, *, actor: Account, reason: str) -> None:
    """Take a submission off every board."""
    if submission.disqualified_at is not None:
        raise Conflict("The submission is disqualified already")
    for each in _with_parts(session, submission):
        each.disqualified_at = now()
    audit.record(session, actor, "submission.disqualified", submission, reason=reason)


def restore(session: Session, submission: Submission, *, actor: Account, reason: str) -> None:
    """Put a disqualified submission back on the boards."""
    if submission.disqualified_at is None:
        raise Conflict("The submission is not disqualified")
    for each in _with_parts(session, submission):
        each.disqualified_at = None
    audit.record(session, actor, "submission.restored", submission, reason=reason)
    _reopen_unscored_finals(session, submission.competition_id)


def _with_parts(session: Session, submission: Submission) -> list[Submission]:
    return [submission, *parts.of(session, [submission.id]).get(submission.id, ())]


def get_team(session: Session, competition: Competition, team_id: str) -> Team:
    """Return a team of the competition. Raises NotFound."""
    team = session.get(Team, team_id)
    if team is None or team.competition_id != competition.id:
        raise NotFound(f"{competition.slug} has no team {team_id!r}")
    return team


def disqualify_team(session: Session, team: Team, *, actor: Account, reason: str) -> None:
    """Take a team off every board, and refuse its further submissions."""
    if team.disqualified_at is not None:
        raise Conflict("The team is disqualified already")
    team.disqualified_at = now()
    audit.record(session, actor, "team.disqualified", team, reason=reason)


def restore_team(session: Session, team: Team, *, actor: Account, reason: str) -> None:
    """Put a disqualified team back on the boards."""
    if team.disqualified_at is None:
        raise Conflict("The team is not disqualified")
    team.disqualified_at = None
    audit.record(session, actor, "team.restored", team, reason=reason)
    _reopen_unscored_finals(session, team.competition_id)


def _reopen_unscored_finals(session: Session, competition_id: str) -> None:
    """Return a provisional competition to `closed` if a restored final has no private score yet."""
    session.flush()
    competition = competition_repository.locked_with_root(session, competition_id)
    competition = competitions.root(session, competition)
    if competition.state == CompetitionState.PROVISIONAL and not finals.is_complete(session, competition):
        lifecycle.move(session, competition, CompetitionState.CLOSED, actor=None, reason="a final came back")


def extend_team(
    session: Session, competition: Competition, team: Team, *, until: datetime | None, actor: Account, reason: str
) -> Team:
    """Set until when a team may submit; None: as all. The team is written to. Raises Conflict or InvalidInput."""
    competition = competition_repository.locked(session, competition.id)
    if not may_change(competition):
        raise Conflict(f"{competition.slug} is {competition.state}; a team's end can no longer be changed")
    if until is not None and until <= max(competition.closes_at, now()):
        allowed = "must lie in the future, after the close"
        raise InvalidInput(f"The end {allowed}", violations=(Violation("until", allowed, until.isoformat()),))
    team = team_repository.locked(session, team.id)
    before, team.extended_until = team.extended_until, until
    data = {name: moment.isoformat() if moment else None for name, moment in (("from", before), ("to", until))}
    audit.record(session, actor, "team.extended", competition=competition, subject=team.id, reason=reason, data=data)
    said = f"may submit until {in_words(until)}" if until else "has the same end as every other team again"
    members = notification_repository.addresses_of_team(session, team.id)
    text, path = f"Your team {team.name} {said}.\n\nReason: {reason}", f"/competitions/{competition.slug}/submit"
    dispatch.write(session, competition, members, subject="your team's end", text=text, path=path)
    return team


ACTS: Mapping[str, Callable[..., None]] = {
    "cancel": cancel,
    "run-again": run_again,
    "confirm": confirm,
    "disqualify": disqualify,
    "restore": restore,
}
ON_ONE_SPLIT = ("run-again", "confirm")
TEAM_ACTS = ("disqualify", "restore", "rename", "extend")
ACCOUNT_ACTS = ("ban", "unban", *(f"make-{role.value}" for role in Role))


def require_act(act: str, allowed: Collection[str]) -> None:
    """Raise InvalidInput for what is none of the acts."""
    if act not in allowed:
        raise InvalidInput(f"{act!r} is not an act; allowed are {', '.join(allowed)}")


def act_on_submission(
    session: Session, submission: Submission, act: str, *, visibility: Visibility, actor: Account, reason: str
) -> None:
    """Carry out one of ACTS. visibility: where it is run again, or whose score is confirmed."""
    split = {"visibility": visibility} if act in ON_ONE_SPLIT else {}
    ACTS[act](session, submission, **split, actor=actor, reason=reason)


def act_on_team(
    session: Session,
    competition: Competition,
    team_id: str,
    act: str,
    *,
    name: str,
    until: datetime | None,
    actor: Account,
    reason: str,
) -> Team:
    """Carry out one of TEAM_ACTS. name: the new one. until: the team's own end, or None."""
    require_act(act, TEAM_ACTS)
    team = get_team(session, competition, team_id)
    if act == "extend":
        return extend_team(session, competition, team, until=until, actor=actor, reason=reason)
    if act == "rename":
        teams.rename(session, team, name=name, actor=actor, reason=reason)
    else:
        (disqualify_team if act == "disqualify" else restore_team)(session, team, actor=actor, reason=reason)
    return team


def act_on_account(session: Session, name: str, act: str, *, actor: Account, reason: str) -> Account:
    """Carry out one of ACCOUNT_ACTS. Raises NotFound, or Conflict for the own account."""
    require_act(act, ACCOUNT_ACTS)
    account = accounts.find(session, name)
    if account.id == actor.id:
        raise Conflict("An administrator cannot do this to the own account")
    if act in ("ban", "unban"):
        (accounts.disable if act == "ban" else accounts.enable)(session, account, actor=actor, reason=reason)
    else:
        accounts.set_role(session, account, Role(act.removeprefix("make-")), actor=actor, reason=reason)
    return account
