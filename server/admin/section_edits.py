"""Changing sections of a competition's file that do not touch its splits: who takes part, phases, pages."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from sqlalchemy.orm import Session

from lethe.competition.file import CompetitionFile
from lethe.errors import InvalidInput
from server.admin import repository
from server.admin.competition_edits import may_change
from server.audit import log as audit
from server.competitions import lifecycle, texts
from server.competitions import repository as competition_repository
from server.competitions import service as competitions
from server.competitions.stored_file import own_values, stored_file
from server.errors import Conflict
from server.models.account import Account
from server.models.competition import Competition, CompetitionState
from server.notifications import email_queue

SECTIONS = ("participation", "phases", "late", "pages")


def edited(competition: Competition, sections: Mapping[str, Any]) -> CompetitionFile:
    """Return the file with these sections changed; keys of a section that are not named stay.

    Raises InvalidInput naming each wrong value.
    """
    present = own_values(competition)
    given = {
        name: {**present.get(name, {}), **value} if isinstance(value, Mapping) else value
        for name, value in sections.items()
    }
    try:
        return CompetitionFile.model_validate({**present, **given})
    except ValidationError as error:
        raise InvalidInput.from_validation(error, source="settings") from error


def change(
    session: Session, competition: Competition, sections: Mapping[str, Any], *, actor: Account, reason: str
) -> Competition:
    """Change some of `SECTIONS`. Raises what `edited` does, and Conflict where it is too late or cannot work here."""
    lifecycle.require_no_task(competition)
    competition = competition_repository.locked(session, competition.id)
    if competition.state == CompetitionState.ARCHIVED:
        raise Conflict(f"{competition.slug} is archived; its settings can no longer be changed")
    before, after = stored_file(competition), edited(competition, sections)
    if before.phases != after.phases:
        _check_phases(session, competition, before, after)
    if after.participation.confirmed_email and not email_queue.is_on():
        raise Conflict("This instance sends no e-mail, so nobody could confirm an address: leave confirmed_email off")
    competitions.set_file(session, competition, after)
    kept = texts.keep_versions(session, competition, author=actor)
    data = {"changed": sorted(_differing(before, after)), "texts": kept}
    audit.record(session, actor, "competition.settings_changed", competition, reason=reason, data=data)
    return competition


def _check_phases(session: Session, competition: Competition, before: CompetitionFile, after: CompetitionFile) -> None:
    """Raise Conflict for phases that are over, and for one with submissions that is gone or counts otherwise."""
    if not may_change(competition):
        raise Conflict(f"{competition.slug} is {competition.state}; its phases can no longer be changed")
    counted = {phase.name: phase.counts for phase in after.phases}
    used = repository.phases_with_submissions(session, competition.id)
    for phase in before.phases:
        if phase.name in used and counted.get(phase.name) != phase.counts:
            raise Conflict(
                f"The phase {phase.name!r} has submissions: it stays, and so does whether they count ({phase.counts})"
            )


def _differing(before: CompetitionFile, after: CompetitionFile) -> set[str]:
    """Return the names of what differs, such as participation.terms."""
    old, new = before.model_dump(include=set(SECTIONS)), after.model_dump(include=set(SECTIONS))
    found = set()
    for section in SECTIONS:
        if not isinstance(old[section], dict):
            found |= {section} if old[section] != new[section] else set()
            continue
        found |= {f"{section}.{key}" for key in old[section] if old[section][key] != new[section][key]}
    return found
