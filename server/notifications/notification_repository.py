"""Queries about webhooks, and about whom an event concerns."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Select, func, select, union
from sqlalchemy.orm import Session

from server.models.account import Account, Role
from server.models.competition import Competition, CompetitionOrganiser, Membership
from server.models.notification import Delivery, Webhook
from server.models.participation import Participant, ParticipantState, TermsAcceptance


def lock_competition(session: Session, competition_id: str) -> None:
    """Lock the competition, so that webhooks are added one after the other."""
    session.execute(select(Competition.id).where(Competition.id == competition_id).with_for_update())


def webhooks(session: Session, competition_id: str) -> Sequence[Webhook]:
    """Return a competition's webhooks that are not disabled, the earliest first."""
    mine = Webhook.competition_id == competition_id, Webhook.disabled_at.is_(None)
    return session.scalars(select(Webhook).where(*mine).order_by(Webhook.created_at, Webhook.id)).all()


def deliveries(session: Session, webhook_id: str, *, limit: int) -> Sequence[Delivery]:
    mine = select(Delivery).where(Delivery.webhook_id == webhook_id)
    return session.scalars(mine.order_by(Delivery.created_at.desc(), Delivery.id).limit(limit)).all()


def addresses_of_team(session: Session, team_id: str) -> list[str]:
    """Return the addresses of a team's members who want mail."""
    mine = select(Account.email).join(Membership, Membership.account_id == Account.id)
    return _addresses(session, union(mine.where(Membership.team_id == team_id, *_reachable())).subquery().c.email)


def addresses_of_competition(session: Session, competition_id: str) -> list[str]:
    """Return the addresses of everybody who takes part in a competition or organises it, and wants mail."""
    theirs = select(Account.email).where(Account.id.in_(_people(competition_id)), *_reachable())
    return _addresses(session, theirs.distinct().subquery().c.email)


def count_people(session: Session, competition_id: str) -> int:
    """Return how many take part in a competition or organise it, whether they want mail or not."""
    theirs = Account.id.in_(_people(competition_id)), Account.disabled_at.is_(None)
    return session.scalar(select(func.count()).select_from(Account).where(*theirs)) or 0


def _people(competition_id: str) -> Select[str]:
    """Select the accounts that take part in a competition, were admitted or accepted terms, or organise it."""
    states = ParticipantState.REFUSED.value, ParticipantState.ASKED.value
    outside = select(Participant.account_id).where(
        Participant.competition_id == competition_id, Participant.state.in_(states)
    )
    taking_part = [
        select(table.account_id).where(table.competition_id == competition_id)
        for table in (Membership, Participant, TermsAcceptance)
    ]
    organisers = select(CompetitionOrganiser.account_id).where(CompetitionOrganiser.competition_id == competition_id)
    admitted = select(Account.id).where(Account.id.in_(union(*taking_part)), Account.id.not_in(outside))
    return select(union(admitted, organisers).subquery().c[0])


def addresses_of_organisers(session: Session, competition_id: str, *, administrators_too: bool = False) -> list[str]:
    """Return the addresses of a competition's organisers, and of the administrators if so asked, who want mail."""
    administrators = select(Account.email).where(Account.role == Role.ADMINISTRATOR.value, *_reachable())
    chosen = [_organisers(competition_id), *([administrators] if administrators_too else [])]
    return _addresses(session, union(*chosen).subquery().c.email)


def addresses_of_account(session: Session, account_id: str) -> list[str]:
    """Return the address of a person who wants mail, or nothing."""
    own = select(Account.email).where(Account.id == account_id, *_reachable())
    return _addresses(session, own.subquery().c.email)


def _organisers(competition_id: str) -> Select[str | None]:
    theirs = select(Account.email).join(CompetitionOrganiser, CompetitionOrganiser.account_id == Account.id)
    return theirs.where(CompetitionOrganiser.competition_id == competition_id, *_reachable())


def _reachable() -> tuple[ColumnElement[bool], ...]:
    return Account.email_confirmed_at.is_not(None), Account.wants_mail.is_(True), Account.disabled_at.is_(None)


def _addresses(session: Session, column: ColumnElement[str | None]) -> list[str]:
    return [address for address in session.scalars(select(column).order_by(column)) if address]
