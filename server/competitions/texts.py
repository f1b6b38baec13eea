"""Texts whose versions are kept: the terms, which people accept, and the pages beside the description."""

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from lethe.errors import InvalidInput, Violation
from server import audit
from server.competitions import competition_repository, lifecycle, participation, participation_repository
from server.competitions.stored_file import stored_file
from server.models.account import Account
from server.models.competition import Competition
from server.models.participation import CompetitionText, TermsAcceptance

versions = participation_repository.versions


def keep_versions(session: Session, competition: Competition, *, author: Account) -> list[str]:
    """Store each text of the competition's file that differs from its last version. Return their names.

    Called after every change of the file, in its transaction, with the competition's row locked or new.
    """
    changed = []
    for name, text in _present(competition).items():
        latest = participation_repository.latest_text(session, competition.id, name)
        if text == (latest.text if latest else ""):
            continue
        version = latest.version + 1 if latest else 1
        session.add(
            CompetitionText(competition_id=competition.id, name=name, version=version, text=text, author_id=author.id)
        )
        changed.append(name)
    session.flush()
    return changed


def accept_terms(session: Session, competition: Competition, *, version: int, account: Account) -> TermsAcceptance:
    """Note that `account` accepts the terms in force; asked again, it returns what was noted.

    Raises InvalidInput for another version than the one in force: nobody accepts what they have not read.
    """
    lifecycle.require_no_task(competition)
    competition = competition_repository.held(session, competition.id)
    present = participation.terms_version(session, competition)
    if version != present or not present:
        allowed = f"must be {present}, the version in force" if present else f"{competition.slug} has no terms"
        raise InvalidInput(f"The version {allowed}", violations=(Violation("version", allowed, str(version)),))
    found = participation_repository.acceptance(session, competition.id, account.id, version)
    if found is not None:
        return found
    row = TermsAcceptance(competition_id=competition.id, account_id=account.id, version=version)
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:  # accepted twice at once
        return participation_repository.acceptance(session, competition.id, account.id, version) or row
    data = {"account": account.name, "version": version}
    audit.record(
        session, account, "participant.accepted_terms", competition=competition, subject=account.name, data=data
    )
    return row


def _present(competition: Competition) -> dict[str, str]:
    file = stored_file(competition)
    return {participation.TERMS: file.participation.terms, **file.pages.model_dump()}
