"""Changing a competition that runs: its end, its limits, what is announced. What it would affect is shown first."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy.orm import Session

from lethe.competition.file import CompetitionFile
from lethe.competition.new_file import limit_mistakes
from lethe.competition.sections import Limits
from lethe.competition.tasks_section import SHARED_LIMITS
from lethe.errors import InvalidInput, Violation
from server.admin import repository
from server.audit import log as audit
from server.competitions import lifecycle
from server.competitions import repository as competition_repository
from server.competitions import service as competitions
from server.competitions.phases import shown_period
from server.competitions.stored_file import own_values, stored_file
from server.db import now, start_of_day
from server.errors import Conflict
from server.models.account import Account
from server.models.competition import Competition, CompetitionState
from server.models.rejudging import Announcement
from server.notifications import dispatch
from server.teams import repository as teams

CHANGEABLE = (CompetitionState.DRAFT, CompetitionState.READY, CompetitionState.OPEN, CompetitionState.CLOSED)
announcements = repository.announcements


@dataclass(frozen=True)
class LimitsChange:
    """New limits, and whom they would affect."""

    before: Limits
    after: Limits
    over_daily_quota: dict[str, int]  # teams that have sent more in their phase today than they then may, and how many
    over_total_quota: dict[str, int]
    too_large: dict[str, int]
    too_many_finals: dict[str, int]
    unfinished: int  # submissions whose remaining runs get the new limits

    @property
    def changed(self) -> dict[str, tuple[Any, Any]]:
        """Old and new value of each limit that differs."""
        old, new = self.before.model_dump(), self.after.model_dump()
        return {name: (old[name], new[name]) for name in old if old[name] != new[name]}


def may_change(competition: Competition) -> bool:
    """Return whether the competition's end and limits may still be changed."""
    return competition.state in CHANGEABLE and competition.frozen_at is None


def extend(
    session: Session, competition: Competition, *, closes_at: datetime, actor: Account, reason: str
) -> Competition:
    """Set another end; a competition that has closed opens again unless its finals are frozen."""
    lifecycle.require_no_task(competition)
    competition = competition_repository.locked(session, competition.id)
    if not may_change(competition):
        raise Conflict(f"{competition.slug} is {competition.state}; its end can no longer be changed")
    if closes_at <= max(competition.opens_at, now()):
        allowed = "must lie in the future, after the opening"
        raise InvalidInput(f"The end {allowed}", violations=(Violation("closes_at", allowed, closes_at.isoformat()),))
    _write_config(session, competition, {"closes_at": closes_at.isoformat()})
    before, competition.closes_at = competition.closes_at, closes_at
    data = {"from": before.isoformat(), "to": closes_at.isoformat()}
    audit.record(session, actor, "competition.end_changed", competition, reason=reason, data=data)
    if competition.state == CompetitionState.CLOSED:
        competition.closed_at = None
        lifecycle.move(session, competition, CompetitionState.OPEN, actor=actor, reason=reason)
    competitions.share(session, competition)
    return competition


def preview_limits(session: Session, competition: Competition, values: Mapping[str, Any]) -> LimitsChange:
    """Return what other limits would mean. Raises InvalidInput naming each wrong value."""
    file = stored_file(competition)
    before = file.limits
    _check_are_its_own(competition, {name for name, value in values.items() if value != getattr(before, name, None)})
    try:
        after = Limits.model_validate({**before.model_dump(), **values})
    except ValidationError as error:
        raise InvalidInput.from_validation(error, source="limits") from error
    earlier = set(limit_mistakes(before, n_models=file.n_models))  # taken before there was this check
    if wrong := tuple(each for each in limit_mistakes(after, n_models=file.n_models) if each not in earlier):
        raise InvalidInput.from_violations(wrong, source="limits")
    over_daily_quota, over_total_quota = _over_quota(session, competition, file.model_copy(update={"limits": after}))
    people = repository.people_per_team(session, competition.id)
    chosen = repository.chosen_per_team(session, competition.id)
    return LimitsChange(
        before=before,
        after=after,
        over_daily_quota=over_daily_quota,
        over_total_quota=over_total_quota,
        too_large=_beyond(people, after.team_size),
        too_many_finals=_beyond(chosen, after.final_selections),
        unfinished=repository.unfinished(session, competition.id),
    )


def change_limits(
    session: Session, competition: Competition, values: Mapping[str, Any], *, actor: Account, reason: str
) -> LimitsChange:
    """Set other limits. What was accepted stays accepted; runs that have not begun get the new ones."""
    competition = competition_repository.locked(session, competition.id)
    if not may_change(competition):
        raise Conflict(f"{competition.slug} is {competition.state}; its limits can no longer be changed")
    change = preview_limits(session, competition, values)
    _write_config(session, competition, {"limits": change.after.model_dump(mode="json")})
    data = {name: {"from": old, "to": new} for name, (old, new) in change.changed.items()}
    audit.record(session, actor, "competition.limits_changed", competition, reason=reason, data=data)
    return change


def described(competition: Competition, words: Mapping[str, str]) -> CompetitionFile:
    """Return the file with another title, summary or description. Raises InvalidInput naming each wrong value."""
    try:
        return CompetitionFile.model_validate({**own_values(competition), **words})
    except ValidationError as error:
        raise InvalidInput.from_validation(error, source="texts") from error


def describe(
    session: Session, competition: Competition, words: Mapping[str, str], *, actor: Account, reason: str
) -> Competition:
    """Set another title, summary or description. Raises what `described` does, and Conflict once it is archived."""
    competition = competition_repository.locked(session, competition.id)
    if competition.state == CompetitionState.ARCHIVED:
        raise Conflict(f"{competition.slug} is archived; its description can no longer be changed")
    file = described(competition, words)
    changed = sorted(name for name, value in words.items() if competition.config.get(name) != value)
    competition.title, competition.summary = file.title, file.summary
    competitions.set_file(session, competition, file)
    audit.record(session, actor, "competition.described", competition, reason=reason, data={"changed": changed})
    return competition


def archive(session: Session, competition: Competition, *, actor: Account, reason: str) -> Competition:
    """Put a competition away: everything stays to be read."""
    competition = competition_repository.locked(session, competition.id)
    lifecycle.move(session, competition, CompetitionState.ARCHIVED, actor=actor, reason=reason)
    return competition


def announce(session: Session, competition: Competition, *, title: str, text: str, actor: Account) -> Announcement:
    """Publish an announcement, in Markdown. Raises Conflict once the competition is archived."""
    lifecycle.require_no_task(competition)
    if competition.state == CompetitionState.ARCHIVED:
        raise Conflict(f"{competition.slug} is archived; nothing can be announced any more")
    row = Announcement(competition_id=competition.id, author_id=actor.id, title=title, text=text)
    session.add(row)
    session.flush()
    audit.record(session, actor, "competition.announced", competition, data={"announcement": row.id})
    dispatch.notify(session, competition.id, "competition.announced", {"title": title, "text": text})
    return row


def _write_config(session: Session, competition: Competition, values: Mapping[str, Any]) -> None:
    try:
        file = CompetitionFile.model_validate({**own_values(competition), **values})
    except ValidationError as error:
        raise InvalidInput.from_validation(error, source="settings") from error
    competitions.set_file(session, competition, file)


def _check_are_its_own(competition: Competition, changed: set[str]) -> None:
    """Raise InvalidInput for limits of runs of a competition with tasks, and for a task's that all tasks share."""
    if stored_file(competition).tasks:
        wrong, whose = sorted(changed - set(SHARED_LIMITS)), "is a limit of each task: change the task's"
    elif competition.parent_id is not None:
        wrong, whose = sorted(changed & set(SHARED_LIMITS)), "is the same for all tasks: change the competition's"
    else:
        return
    if wrong:
        violations = tuple(Violation(f"limits.{name}", whose) for name in wrong)
        raise InvalidInput(f"{competition.slug}: {wrong[0]} {whose}", violations=violations)


def _over_quota(
    session: Session, competition: Competition, after: CompetitionFile
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the teams that have sent more today, and in all, than the file lets them in their present phase."""
    at = now()
    today = repository.used_per_team(session, competition.id, since=start_of_day(at))
    total = repository.used_per_team(session, competition.id)
    over_daily_quota, over_total_quota = {}, {}
    for team in teams.teams(session, competition):
        if team.is_baseline:
            continue
        period = shown_period(competition, team, at, file=after)
        used = total.get((team.id, period.name), 0)
        if (used_today := today.get((team.id, period.name), 0)) > period.per_day:
            over_daily_quota[team.name] = used_today
        if period.total is not None and used > period.total:
            over_total_quota[team.name] = used
    return over_daily_quota, over_total_quota


def _beyond(counts: Mapping[str, int], limit: int | None) -> dict[str, int]:
    return {} if limit is None else {name: count for name, count in counts.items() if count > limit}
