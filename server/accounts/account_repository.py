"""Queries about accounts, tokens and browser sessions."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import delete, func, or_, select, update
from sqlalchemy.orm import Session, joinedload

from server.accounts.look_alikes import get_shape, shape_of
from server.db import changes_one_row
from server.models.account import Account, ApiToken, PasswordReset, RecoveryCode, Role, WebSession
from server.models.competition import Competition, CompetitionOrganiser, CompetitionState, Membership, Team
from server.models.notification import QueuedEmail
from server.models.participation import AdmittedAddress, Invitation, Participant
from server.models.submission import Submission

NAMES = 0x6E616D65  # the class of advisory locks on the shapes of names


def account_by_name_key(session: Session, name_key: str) -> Account | None:
    return session.scalar(select(Account).where(Account.name_key == name_key))


def lock_look_alikes(session: Session, name_key: str) -> None:
    """Lock names that look like this one until the transaction ends (SQLite: the whole database)."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(NAMES, func.hashtext(get_shape(name_key)))))


def account_that_looks_like(session: Session, name_key: str) -> Account | None:
    """Return an account whose name differs from this one in look-alikes only, or not at all."""
    return session.scalar(select(Account).where(shape_of(Account.name_key) == get_shape(name_key)).limit(1))


def names(session: Session, account_ids: Sequence[str]) -> dict[str, str]:
    """Return the names of accounts by id; an unknown id has no entry."""
    return dict(session.execute(select(Account.id, Account.name).where(Account.id.in_(account_ids))).all())


def account_by_confirmed_email(session: Session, email: str) -> Account | None:
    return session.scalar(select(Account).where(Account.email == email, Account.email_confirmed_at.is_not(None)))


def token_by_hash(session: Session, token_hash: str) -> ApiToken | None:
    return session.scalar(
        select(ApiToken).options(joinedload(ApiToken.account)).where(ApiToken.token_hash == token_hash)
    )


def list_account_tokens(session: Session, account: Account) -> Sequence[ApiToken]:
    """Return the account's tokens that are not revoked, newest first."""
    mine = select(ApiToken).where(ApiToken.account_id == account.id, ApiToken.revoked_at.is_(None))
    return session.scalars(mine.order_by(ApiToken.created_at.desc(), ApiToken.id)).all()


def get_token(session: Session, account_id: str, token_id: str) -> ApiToken | None:
    return session.scalar(select(ApiToken).where(ApiToken.account_id == account_id, ApiToken.id == token_id))


def note_use(session: Session, token_id: str, at: datetime) -> None:
    session.execute(update(ApiToken).where(ApiToken.id == token_id).values(last_used_at=at))


def web_session_by_hash(session: Session, token_hash: str) -> WebSession | None:
    return session.scalar(
        select(WebSession).options(joinedload(WebSession.account)).where(WebSession.token_hash == token_hash)
    )


def active_web_sessions(session: Session, account_id: str, at: datetime) -> Sequence[WebSession]:
    """Return the account's sessions that are neither over nor revoked, the newest first."""
    mine = select(WebSession).where(
        WebSession.account_id == account_id, WebSession.revoked_at.is_(None), WebSession.expires_at > at
    )
    return session.scalars(mine.order_by(WebSession.created_at.desc(), WebSession.id)).all()


def web_session(session: Session, *, account_id: str, session_id: str) -> WebSession | None:
    return session.scalar(select(WebSession).where(WebSession.account_id == account_id, WebSession.id == session_id))


def revoke_web_sessions(session: Session, account_id: str, at: datetime, *, kept_hash: str = "") -> None:
    active = WebSession.revoked_at.is_(None), WebSession.token_hash != kept_hash
    session.execute(update(WebSession).where(WebSession.account_id == account_id, *active).values(revoked_at=at))


def revoke_tokens(session: Session, account_id: str, at: datetime) -> None:
    session.execute(
        update(ApiToken).where(ApiToken.account_id == account_id, ApiToken.revoked_at.is_(None)).values(revoked_at=at)
    )


def use_totp_step(session: Session, account_id: str, step: int) -> bool:
    """Use up a code's step of time. Return whether neither it nor a later one was used before."""
    earlier = or_(Account.totp_step.is_(None), Account.totp_step < step)
    return changes_one_row(session, update(Account).where(Account.id == account_id, earlier).values(totp_step=step))


def use_recovery_code(session: Session, code_hash: str, at: datetime) -> bool:
    """Use up a recovery code. Return whether it was there, unused."""
    unused = RecoveryCode.code_hash == code_hash, RecoveryCode.used_at.is_(None)
    return changes_one_row(session, update(RecoveryCode).where(*unused).values(used_at=at))


def replace_recovery_codes(session: Session, account_id: str, code_hashes: Sequence[str]) -> None:
    session.execute(delete(RecoveryCode).where(RecoveryCode.account_id == account_id))
    session.add_all(RecoveryCode(account_id=account_id, code_hash=code_hash) for code_hash in code_hashes)


def count_recovery_codes(session: Session, account: Account) -> int:
    """Return how many recovery codes are unused."""
    mine = RecoveryCode.account_id == account.id, RecoveryCode.used_at.is_(None)
    return session.scalar(select(func.count()).select_from(RecoveryCode).where(*mine)) or 0


def add_reset(session: Session, account_id: str, *, token_hash: str, expires_at: datetime) -> None:
    session.add(PasswordReset(account_id=account_id, token_hash=token_hash, expires_at=expires_at))


def open_reset(session: Session, token_hash: str, at: datetime) -> PasswordReset | None:
    """Return the link for a forgotten password that still works, with its account."""
    same = select(PasswordReset).options(joinedload(PasswordReset.account))
    still = PasswordReset.ended_at.is_(None), PasswordReset.expires_at > at
    return session.scalar(same.where(PasswordReset.token_hash == token_hash, *still))


def end_reset(session: Session, reset_id: str, at: datetime) -> bool:
    """Use up a link. Return False if it was used before: of two concurrent calls, one gets True."""
    statement = update(PasswordReset).where(PasswordReset.id == reset_id, PasswordReset.ended_at.is_(None))
    return changes_one_row(session, statement.values(ended_at=at))


def end_resets(session: Session, account_id: str, at: datetime) -> None:
    mine = update(PasswordReset).where(PasswordReset.account_id == account_id, PasswordReset.ended_at.is_(None))
    session.execute(mine.values(ended_at=at))


def other_administrators(session: Session, account_id: str) -> int:
    """Return how many administrators there are beside this one who can log in."""
    others = Account.id != account_id, Account.role == Role.ADMINISTRATOR.value, Account.disabled_at.is_(None)
    return session.scalar(select(func.count()).select_from(Account).where(*others)) or 0


def organised_alone(session: Session, account_id: str) -> Sequence[str]:
    """Return the slugs of the competitions, not archived, that have no other organiser."""
    alone = (
        select(CompetitionOrganiser.competition_id)
        .group_by(CompetitionOrganiser.competition_id)
        .having(func.count() == 1, func.max(CompetitionOrganiser.account_id) == account_id)
    )
    going = Competition.state != CompetitionState.ARCHIVED.value
    return session.scalars(select(Competition.slug).where(Competition.id.in_(alone), going).order_by("slug")).all()


def get_teams(session: Session, account_id: str) -> Sequence[Team]:
    mine = select(Team).join(Membership, Membership.team_id == Team.id).where(Membership.account_id == account_id)
    return session.scalars(mine.order_by(Team.id)).all()


def forget(session: Session, account: Account) -> None:
    """Delete an account's own rows: sessions, tokens, invitations, mails, private notes."""
    for table in (WebSession, ApiToken, PasswordReset, RecoveryCode, Invitation, CompetitionOrganiser):
        session.execute(delete(table).where(table.account_id == account.id))
    session.execute(delete(QueuedEmail).where(QueuedEmail.address == account.email))
    session.execute(delete(AdmittedAddress).where(AdmittedAddress.address == (account.email or "").lower()))
    session.execute(update(Submission).where(Submission.account_id == account.id).values(message=""))
    session.execute(update(Participant).where(Participant.account_id == account.id).values(message=""))
