"""Changing a competition: fields of its file, or all of it until it opens. Announcements and the archive."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy.orm import Session

from lethe.competition.file import CompetitionFile
from lethe.competition.new_file import limit_mistakes
from lethe.competition.preparation_share import training_recipe
from lethe.competition.section import as_stored
from lethe.competition.task import SHARED_LIMITS
from lethe.errors import InvalidInput, Violation
from lethe.text_files import plain_text
from server import audit
from server.admin import admin_repository
from server.competitions import competition_repository, competitions, lifecycle, questions, stalled_preparations
from server.competitions.lifecycle import forget_tasks, shown_period
from server.competitions.stored_file import own_values, read_file, stored_file
from server.datasets import datasets
from server.db import now, start_of_day
from server.errors import Conflict
from server.models.account import Account
from server.models.competition import Competition, CompetitionState, Split, SplitState
from server.models.evaluation import Announcement
from server.notifications import dispatch, outbox
from server.notifications.dispatch import Reached
from server.submissions import submission_repository
from server.teams import team_repository

CHANGEABLE = (CompetitionState.DRAFT, CompetitionState.READY, CompetitionState.OPEN, CompetitionState.CLOSED)
TEXTS = ("title", "summary", "description")
SECTIONS = ("participation", "phases", "late", "pages")
FIELDS = (*TEXTS, "closes_at", "limits", *SECTIONS)
announcements = admin_repository.announcements


@dataclass(frozen=True)
class Change:
    """Another file of a competition, and whom its limits affect: teams, each with how many it then has too many of."""

    before: CompetitionFile
    after: CompetitionFile
    over_daily_quota: dict[str, int] = field(default_factory=dict)  # in their phase, today
    over_total_quota: dict[str, int] = field(default_factory=dict)
    too_large: dict[str, int] = field(default_factory=dict)
    too_many_finals: dict[str, int] = field(default_factory=dict)
    unfinished: int = 0  # submissions whose remaining runs get the new limits
    drops_data: bool = False  # a split was made of other data than the file before names

    @property
    def changed(self) -> dict[str, tuple[Any, Any]]:
        """Old and new values that differ, by key, such as limits.team_size."""
        old, new = _flat(self.before), _flat(self.after)
        return {name: (old.get(name), new.get(name)) for name in {**old, **new} if old.get(name) != new.get(name)}

    @property
    def trains_again(self) -> bool:
        """Whether no model that was trained by the file before serves the one after."""
        recipes = [[training_recipe(each) for each in file.evaluated] for file in (self.before, self.after)]
        return self.drops_data or recipes[0] != recipes[1]


def may_change(competition: Competition) -> bool:
    """Return whether the competition's end, limits and phases may still be changed."""
    return competition.state in CHANGEABLE and competition.frozen_at is None


def may_replace_file(competition: Competition, splits: list[Split]) -> bool:
    """Return whether another file is taken: until the opening, but for a benchmark's cell and a preparation at work."""
    if competition.cell_key is not None:
        return False
    if competition.state == CompetitionState.DRAFT:
        return True
    if competition.state == CompetitionState.READY:
        return competition.opens_at > now()  # from then on it takes submissions, whoever moves it
    states = {split.state for split in splits}
    failed = SplitState.FAILED.value in states and not states & {SplitState.PREPARING.value, SplitState.PENDING.value}
    return competition.state == CompetitionState.PREPARING and failed


def change(
    session: Session,
    competition: Competition,
    values: Mapping[str, Any],
    *,
    actor: Account,
    reason: str = "",
    preview: bool = False,
) -> Change:
    """Change some of `FIELDS`, where keys of a section that are not named stay; or the whole `file`, as TOML.

    preview: do the same, and take all of it back. Raises InvalidInput naming each wrong value, NotAllowed for what only
    an administrator may ask of the host, and Conflict where it is too late or cannot work here.
    """
    if not (preview or reason.strip() or "file" in values):
        missing = Violation("reason", "is missing")
        raise InvalidInput("A reason is needed: it is recorded in the audit log", violations=(missing,))
    with session.begin_nested() as savepoint:
        competition = competition_repository.locked(session, competition.id)
        write = _replace_file if "file" in values else _change_fields
        changed = write(session, competition, values, actor=actor, reason=reason.strip())
        if preview:
            savepoint.rollback()
    return changed


def _change_fields(
    session: Session, competition: Competition, values: Mapping[str, Any], *, actor: Account, reason: str
) -> Change:
    _require_changeable(competition, values)
    changed = Change(stored_file(competition), _merged(competition, values))
    _require_phases_stay(session, competition, changed)
    if "participation" in values and changed.after.participation.confirmed_email and not outbox.sends_mail():
        raise Conflict("This instance sends no e-mail, so nobody could confirm an address: leave confirmed_email off")
    if "limits" in values:
        _check_limits(competition, changed)
        changed = replace(changed, **_affected(session, competition, changed.after))
    competition.title, competition.summary = changed.after.title, changed.after.summary
    if "closes_at" in values:
        _move_end(session, competition, changed.after.closes_at, actor=actor, reason=reason)
    competitions.set_file(session, competition, changed.after)
    of_sections = not values.keys().isdisjoint(SECTIONS)
    kept = questions.keep_versions(session, competition, author=actor) if of_sections else []
    for action, data in _events(values, changed, kept=kept).items():
        audit.record(session, actor, action, competition, reason=reason, data=data)
    return changed


def _replace_file(
    session: Session, competition: Competition, values: Mapping[str, Any], *, actor: Account, reason: str
) -> Change:
    """Put another file in place; the competition is a draft again, whose preparation keeps what the file still says."""
    if others := sorted(set(values) - {"file"}):
        raise InvalidInput(f"file replaces everything: leave out {', '.join(others)}")
    lifecycle.require_no_task(competition)
    splits = list(competition_repository.splits(session, competition.id))
    if not may_replace_file(competition, splits):
        allowed = "that ends at its opening time, and waits for a preparation at work"
        raise Conflict(f"{competition.slug} is {competition.state}; its file can no longer be replaced: {allowed}")
    text = plain_text(values["file"])
    before, drops_data = stored_file(competition), any(split.dataset for split in splits)
    file = _with_drawn_seed(read_file(text), text, before=before, source=competition.source)
    competitions.check_trust(file, actor)
    if file.slug != competition.slug:
        wrong = Violation("slug", f"must stay {competition.slug}", file.slug)
        raise InvalidInput("The slug of a competition cannot be changed", violations=(wrong,))
    for each in file.evaluated:
        datasets.check_usable(session, each, actor=actor)
    why = reason or "the file was replaced"
    lifecycle.move(session, competition, CompetitionState.DRAFT, actor=actor, reason=why)  # a draft stays one
    submission_repository.forget_baselines(session, competition.id)
    competition_repository.forget_replacements(session, competition.id)
    if file.tasks or before.tasks:
        _replace_evaluated(session, competition, file)
    competition.title, competition.summary = file.title, file.summary
    competition.opens_at, competition.closes_at = file.opens_at, file.closes_at
    competition.config, competition.source = as_stored(file), text
    questions.keep_versions(session, competition, author=actor)
    for split in competition_repository.splits(session, competition.id):
        stalled_preparations.let_go(split)
        split.retraining_time_s = split.retraining_cpu_s = split.start_cpu_s = None
        split.manifest_sha256 = split.n_forget = split.oracle = split.prepared_at = split.dataset = None
        competition_repository.forget_model_shards(session, split.id)
    audit.record(session, actor, "competition.rewritten", competition, reason=reason)
    return Change(before, file, drops_data=drops_data)


def _with_drawn_seed(file: CompetitionFile, text: str, *, before: CompetitionFile, source: str) -> CompetitionFile:
    """Return the file with the seed that was drawn before, where neither names one: the same models then serve it."""
    if file.tasks or before.tasks or _names_seed(text, file) or _names_seed(source, before):
        return file
    return file.model_copy(update={"splits": file.splits.model_copy(update={"seed": before.splits.seed})})


def _names_seed(text: str, file: CompetitionFile) -> bool:
    """Return whether the seed stands in the text, in any notation: one that was drawn is too long to be there."""
    return any(f"{file.splits.seed:{notation}}" in text.lower().replace("_", "") for notation in "dxob")


def _replace_evaluated(session: Session, competition: Competition, file: CompetitionFile) -> None:
    """Put other tasks, or splits, in place of those that the competition has. Nothing of them is prepared."""
    forget_tasks(session, competition)
    for split in competition_repository.splits(session, competition.id):
        competition_repository.forget_model_shards(session, split.id)
        session.delete(split)
    session.flush()
    competitions.add_evaluated(session, competition, file)


def archive(session: Session, competition: Competition, *, actor: Account, reason: str) -> Competition:
    """Put a competition away: everything stays to be read."""
    competition = competition_repository.locked(session, competition.id)
    lifecycle.move(session, competition, CompetitionState.ARCHIVED, actor=actor, reason=reason)
    return competition


def announce(
    session: Session, competition: Competition, *, title: str, text: str, actor: Account
) -> tuple[Announcement, Reached]:
    """Publish an announcement, in Markdown. Raises Conflict once the competition is archived."""
    lifecycle.require_no_task(competition)
    if competition.state == CompetitionState.ARCHIVED:
        raise Conflict(f"{competition.slug} is archived; nothing can be announced any more")
    row = Announcement(competition_id=competition.id, author_id=actor.id, title=title, text=text)
    session.add(row)
    session.flush()
    reached = dispatch.announce(session, competition, {"title": title, "text": text})
    data = {"announcement": row.id, "people": reached.people, "mails": reached.mails}
    audit.record(session, actor, "competition.announced", competition, data=data)
    return row, reached


def _require_changeable(competition: Competition, values: Mapping[str, Any]) -> None:
    """Raise Conflict where it is too late for one of the fields, or InvalidInput for an end that is past."""
    if not values:
        raise InvalidInput(f"Name what is to change: {', '.join(FIELDS)}, or file")
    if not set(values) <= {"limits", *TEXTS}:
        lifecycle.require_no_task(competition)
    timely = {"closes_at": "end", "limits": "limits"}
    if late := [name for field, name in timely.items() if field in values and not may_change(competition)]:
        raise Conflict(f"{competition.slug} is {competition.state}; its {late[0]} can no longer be changed")
    if competition.state == CompetitionState.ARCHIVED:
        what = "description" if set(values) <= set(TEXTS) else "settings"
        raise Conflict(f"{competition.slug} is archived; its {what} can no longer be changed")
    end = values.get("closes_at")
    if end is not None and end <= max(competition.opens_at, now()):
        allowed = "must lie in the future, after the opening"
        raise InvalidInput(f"The end {allowed}", violations=(Violation("closes_at", allowed, end.isoformat()),))


def _merged(competition: Competition, values: Mapping[str, Any]) -> CompetitionFile:
    present = own_values(competition)
    given = {
        name: {**present[name], **value} if isinstance(value, Mapping) else value for name, value in values.items()
    }
    try:
        return CompetitionFile.model_validate({**present, **given})
    except ValidationError as error:
        raise InvalidInput.from_validation(error, source="settings") from error


def _require_phases_stay(session: Session, competition: Competition, change: Change) -> None:
    """Raise Conflict for phases that are over, and for one with submissions that is gone or counts otherwise."""
    if change.before.phases == change.after.phases:
        return
    if not may_change(competition):
        raise Conflict(f"{competition.slug} is {competition.state}; its phases can no longer be changed")
    counted = {phase.name: phase.counts for phase in change.after.phases}
    used = admin_repository.phases_with_submissions(session, competition.id)
    for phase in change.before.phases:
        if phase.name in used and counted.get(phase.name) != phase.counts:
            raise Conflict(
                f"The phase {phase.name!r} has submissions: it stays, and so does whether they count ({phase.counts})"
            )


def _check_limits(competition: Competition, change: Change) -> None:
    """Raise InvalidInput for a limit that cannot work, or that the competition shares with its tasks."""
    n_models = change.after.n_models
    earlier = set(limit_mistakes(change.before.limits, n_models=n_models))  # taken before there was this check
    if wrong := tuple(each for each in limit_mistakes(change.after.limits, n_models=n_models) if each not in earlier):
        raise InvalidInput.from_violations(wrong, source="limits")
    changed = {name.removeprefix("limits.") for name in change.changed if name.startswith("limits.")}
    if change.before.tasks:
        foreign, whose = sorted(changed - set(SHARED_LIMITS)), "is a limit of each task: change the task's"
    elif competition.parent_id is not None:
        foreign, whose = sorted(changed & set(SHARED_LIMITS)), "is the same for all tasks: change the competition's"
    else:
        return
    if foreign:
        violations = tuple(Violation(f"limits.{name}", whose) for name in foreign)
        raise InvalidInput(f"{competition.slug}: {foreign[0]} {whose}", violations=violations)


def _affected(session: Session, competition: Competition, after: CompetitionFile) -> dict[str, Any]:
    """Return the fields of a `Change` that say whom other limits affect."""
    over_daily_quota, over_total_quota = _over_quota(session, competition, after)
    people = admin_repository.people_per_team(session, competition.id)
    chosen = admin_repository.chosen_per_team(session, competition.id)
    return {
        "over_daily_quota": over_daily_quota,
        "over_total_quota": over_total_quota,
        "too_large": _beyond(people, after.limits.team_size),
        "too_many_finals": _beyond(chosen, after.limits.final_selections),
        "unfinished": admin_repository.unfinished(session, competition.id),
    }


def _over_quota(
    session: Session, competition: Competition, after: CompetitionFile
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the teams that have sent more today, and in all, than the file lets them in their present phase."""
    at = now()
    today = admin_repository.used_per_team(session, competition.id, since=start_of_day(at))
    total = admin_repository.used_per_team(session, competition.id)
    over_daily_quota, over_total_quota = {}, {}
    for team in team_repository.teams(session, competition):
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


def _move_end(session: Session, competition: Competition, to: datetime, *, actor: Account, reason: str) -> None:
    """Set another end; a competition that has closed opens again."""
    data = {"from": competition.closes_at.isoformat(), "to": to.isoformat()}
    competition.closes_at = to
    audit.record(session, actor, "competition.end_changed", competition, reason=reason, data=data)
    if competition.state == CompetitionState.CLOSED:
        competition.closed_at = None
        lifecycle.move(session, competition, CompetitionState.OPEN, actor=actor, reason=reason)


def _events(values: Mapping[str, Any], edit: Change, *, kept: list[str]) -> dict[str, dict[str, Any]]:
    """Return the data of each audit event by its action."""

    def of(fields: tuple[str, ...]) -> list[str]:
        return sorted(name for name in edit.changed if name.partition(".")[0] in fields)

    events: dict[str, dict[str, Any]] = {}
    if not values.keys().isdisjoint(TEXTS):
        events["competition.described"] = {"changed": of(TEXTS)}
    if "limits" in values:
        limits = {name: dict(zip(("from", "to"), edit.changed[name], strict=True)) for name in of(("limits",))}
        events["competition.limits_changed"] = {name.removeprefix("limits."): change for name, change in limits.items()}
    if not values.keys().isdisjoint(SECTIONS):
        events["competition.settings_changed"] = {"changed": of(SECTIONS), "texts": kept}
    return events


def _flat(file: CompetitionFile) -> dict[str, Any]:
    """Return the file's values by name, of a section by section.name; without seeds, which no answer holds."""
    flat: dict[str, Any] = {}
    values = file.model_dump(mode="json", exclude={"splits": {"seed"}, "tasks": {"__all__": {"splits": {"seed"}}}})
    for name, value in values.items():
        flat |= {f"{name}.{key}": each for key, each in value.items()} if isinstance(value, dict) else {name: value}
    return flat
