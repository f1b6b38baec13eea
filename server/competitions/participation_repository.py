"""Queries about who takes part in a competition, and what they ask."""

from collections.abc import Collection, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Select, delete, func, or_, select
from sqlalchemy.orm import Session, joinedload

from server.models.account import Account
from server.models.competition import Competition, Membership
from server.models.participation import (
    AdmissionLink,
    AdmittedAddress,
    CompetitionText,
    Participant,
    ParticipantState,
    Question,
    TermsAcceptance,
)


def participants(
    session: Session, competition_id: str, *, state: str, offset: int, limit: int
) -> Sequence[Participant]:
    """Return some of those about whom something was asked or decided, the latest first. state: empty for all."""
    statement = select(Participant).options(joinedload(Participant.account))
    statement = statement.where(Participant.competition_id == competition_id)
    if state:
        statement = statement.where(Participant.state == state)
    order = Participant.created_at.desc(), Participant.account_id
    return session.scalars(statement.order_by(*order).offset(offset).limit(limit)).all()


def count_asked(session: Session, competition: Competition) -> int:
    """Return how many wait for a decision."""
    asked = Participant.competition_id == competition.id, Participant.state == ParticipantState.ASKED.value
    return session.scalar(select(func.count()).select_from(Participant).where(*asked)) or 0


def is_member(session: Session, competition_id: str, account_id: str) -> bool:
    """Return whether the account is in a team of the competition."""
    mine = Membership.competition_id == competition_id, Membership.account_id == account_id
    return session.scalar(select(Membership.team_id).where(*mine)) is not None


def addresses_of_members(session: Session, competition_id: str, *, pattern: str) -> Sequence[str]:
    """Return the confirmed addresses of people in teams that are like `pattern`, of which a backslash escapes."""
    statement = (
        select(Account.email)
        .join(Membership, Membership.account_id == Account.id)
        .where(Membership.competition_id == competition_id, Account.email_confirmed_at.is_not(None))
        .where(func.lower(Account.email).like(pattern, escape="\\"))
    )
    return [address for address in session.scalars(statement) if address]


def lock_accounts(session: Session, *, pattern: str) -> None:
    """Lock the accounts whose confirmed addresses are like `pattern` until the transaction ends (SQLite: all is)."""
    like = func.lower(Account.email).like(pattern, escape="\\"), Account.email_confirmed_at.is_not(None)
    session.execute(select(Account.id).where(*like).order_by(Account.id).with_for_update(key_share=True)).all()


def has_address(session: Session, competition_id: str, address: str) -> bool:
    return session.get(AdmittedAddress, (competition_id, address)) is not None


def addresses(session: Session, competition_id: str) -> Sequence[AdmittedAddress]:
    """Return the addresses whose owners are admitted, in their order."""
    statement = select(AdmittedAddress).where(AdmittedAddress.competition_id == competition_id)
    return session.scalars(statement.order_by(AdmittedAddress.address)).all()


def remove_addresses(session: Session, competition_id: str, gone: Collection[str]) -> None:
    theirs = AdmittedAddress.competition_id == competition_id, AdmittedAddress.address.in_(gone)
    session.execute(delete(AdmittedAddress).where(*theirs))


def link_by_hash(session: Session, token_hash: str) -> AdmissionLink | None:
    return session.scalar(select(AdmissionLink).where(AdmissionLink.token_hash == token_hash))


def locked_link(session: Session, link_id: str) -> AdmissionLink:
    """Return the link, its row locked until the transaction ends, so that uses are counted correctly."""
    return session.get_one(AdmissionLink, link_id, with_for_update=True, populate_existing=True)


def open_links(session: Session, competition_id: str, at: datetime) -> Sequence[AdmissionLink]:
    """Return the links that still admit somebody, the newest first."""
    statement = select(AdmissionLink).where(
        AdmissionLink.competition_id == competition_id,
        AdmissionLink.revoked_at.is_(None),
        AdmissionLink.expires_at > at,
        AdmissionLink.uses < AdmissionLink.most_uses,
    )
    return session.scalars(statement.order_by(AdmissionLink.created_at.desc(), AdmissionLink.id)).all()


def latest_text(session: Session, competition_id: str, name: str) -> CompetitionText | None:
    """Return the last version of a text; None if there never was one."""
    statement = select(CompetitionText).where(
        CompetitionText.competition_id == competition_id, CompetitionText.name == name
    )
    return session.scalar(statement.order_by(CompetitionText.version.desc()).limit(1))


def versions(session: Session, competition: Competition, name: str) -> Sequence[tuple[CompetitionText, str]]:
    """Return every version of a text with its author's name, the newest first."""
    statement = (
        select(CompetitionText, Account.name)
        .join(Account, Account.id == CompetitionText.author_id)
        .where(CompetitionText.competition_id == competition.id, CompetitionText.name == name)
    )
    return [(text, author) for text, author in session.execute(statement.order_by(CompetitionText.version.desc()))]


def acceptance(session: Session, competition_id: str, account_id: str, version: int) -> TermsAcceptance | None:
    return session.get(TermsAcceptance, (competition_id, account_id, version))


def acceptances(session: Session, competition_id: str, account_ids: Collection[str]) -> dict[str, TermsAcceptance]:
    """Return the latest acceptance of each of these accounts, by account id."""
    statement = select(TermsAcceptance).where(
        TermsAcceptance.competition_id == competition_id, TermsAcceptance.account_id.in_(account_ids)
    )
    return {row.account_id: row for row in session.scalars(statement.order_by(TermsAcceptance.version))}


def by_id(session: Session, question_id: str) -> Question | None:
    statement = select(Question).options(joinedload(Question.account)).where(Question.id == question_id)
    return session.scalar(statement)


def shown(session: Session, competition_id: str, *, account_id: str | None) -> Sequence[Question]:
    """Return what is answered to all, and what the account asked itself, the newest first."""
    public: ColumnElement[bool] = Question.is_public.is_(True) & Question.answered_at.is_not(None)
    seen = public if account_id is None else or_(public, Question.account_id == account_id)
    return session.scalars(_newest(competition_id).where(seen)).all()


def page(session: Session, competition_id: str, *, only_open: bool, offset: int, limit: int) -> Sequence[Question]:
    """Return some of all questions, the newest first."""
    statement = _newest(competition_id).options(joinedload(Question.account))
    if only_open:
        statement = statement.where(Question.answered_at.is_(None))
    return session.scalars(statement.offset(offset).limit(limit)).all()


def count_open(session: Session, competition: Competition, *, account_id: str | None = None) -> int:
    """Return how many have no answer; account_id: of those that this person asked."""
    waiting = select(func.count()).where(Question.competition_id == competition.id, Question.answered_at.is_(None))
    if account_id is not None:
        waiting = waiting.where(Question.account_id == account_id)
    return session.scalar(waiting) or 0


def _newest(competition_id: str) -> Select[Question]:
    mine = select(Question).where(Question.competition_id == competition_id)
    return mine.order_by(Question.created_at.desc(), Question.id)
