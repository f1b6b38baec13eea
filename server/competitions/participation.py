"""Whether somebody may take part in a competition: the one answer that every page, route and command gives.

Who is in a team, submits, or takes the kit or pictures of the data, is asked here; so is who sees a private
competition.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from pydantic import Field
from sqlalchemy.orm import Session

from lethe.errors import AppError
from server.competitions import competition_repository, lifecycle, participation_repository
from server.competitions.stored_file import stored_file
from server.errors import NotAllowed, NotAuthenticated
from server.models.account import Account, Role
from server.models.competition import Competition
from server.models.participation import Participant, ParticipantState

TERMS = "terms"


@dataclass(frozen=True)
class Standing:
    """How the caller stands with a competition."""

    admission: Annotated[str, Field(description="open, invited, approved", examples=["approved"])]
    state: Annotated[
        str, Field(description="admitted, asked, refused, or none: not admitted, nothing asked", examples=["admitted"])
    ]
    reason: Annotated[str, Field(description="of a refusal")]
    may_take_part: Annotated[bool, Field(description="whether nothing is missing")]
    terms_version: Annotated[int, Field(description="in force; 0: there are none", examples=[2])]
    accepted_at: Annotated[datetime | None, Field(description="when the caller accepted that version")]
    lacks_address: Annotated[bool, Field(description="a confirmed e-mail address is needed, and is not there")]
    shares_address: Annotated[bool, Field(description="somebody in a team has the same e-mail address")]

    @property
    def lacks_terms(self) -> bool:
        """Whether terms are in force that the account has not accepted in this version."""
        return self.terms_version > 0 and self.accepted_at is None


def organises(session: Session, competition: Competition, account: Account | None) -> bool:
    """Return whether `account` runs this competition; administrators run all of them."""
    if account is None:
        return False
    if account.role == Role.ADMINISTRATOR:
        return True
    return competition_repository.organises(session, competition_id=competition.root_id, account_id=account.id)


def may_see(session: Session, competition: Competition, account: Account | None) -> bool:
    """Return whether a competition that is not hidden is shown to `account`: a private one to who may take part."""
    if not stored_file(competition).participation.private:
        return True
    if account is None:
        return False
    return organises(session, competition, account) or _admitted(session, competition, account)[0] == "admitted"


def standing(session: Session, competition: Competition, account: Account) -> Standing:
    """Return how `account` stands with the competition. Organisers are admitted, and accept terms like everybody."""
    rules = stored_file(competition).participation
    state, reason = _admitted(session, competition, account)
    version = terms_version(session, competition)
    accepted = (
        participation_repository.acceptance(session, competition.root_id, account.id, version) if version else None
    )
    lacks_address = rules.confirmed_email and account.email_confirmed_at is None
    shares_address = rules.confirmed_email and not lacks_address and _shares_address(session, competition, account)
    lacks_terms = version > 0 and accepted is None
    return Standing(
        admission=rules.admission,
        state=state,
        reason=reason,
        may_take_part=state == "admitted" and not (lacks_terms or lacks_address or shares_address),
        terms_version=version,
        accepted_at=accepted.accepted_at if accepted else None,
        lacks_address=lacks_address,
        shares_address=shares_address,
    )


def check_admitted(session: Session, competition: Competition, account: Account) -> None:
    """Raise NotAllowed for who is not admitted, or was removed."""
    state, reason = _admitted(session, competition, account)
    if state != "admitted":
        raise _not_admitted(competition, state, reason)


def check_may_take_part(session: Session, competition: Competition, account: Account) -> None:
    """Raise NotAllowed, saying what is missing, for who may not be in a team or submit."""
    error = _lacking(competition, standing(session, competition, account))
    if error is not None:
        raise error


def check_address_is_free(session: Session, competition: Competition, account: Account) -> None:
    """Raise NotAllowed if somebody in a team has the account's mailbox; accounts of one wait for each other."""
    if stored_file(competition).participation.confirmed_email and account.email:
        participation_repository.lock_accounts(session, pattern=_like(mailbox(account.email)))
        if _shares_address(session, competition, account):
            raise _shares(competition)


def check_may_have_data(session: Session, competition: Competition, account: Account | None) -> None:
    """Raise NotAuthenticated or NotAllowed for who may not have the kit, or see pictures of the data."""
    if stored_file(competition).participation.is_open or organises(session, competition, account):
        return
    if account is None:
        raise NotAuthenticated(f"Log in: only who takes part in {lifecycle.whole_slug(competition)} has its data")
    check_may_take_part(session, competition, account)


def may_have_data(session: Session, competition: Competition, account: Account | None) -> bool:
    """Return whether `check_may_have_data` lets the account pass."""
    try:
        check_may_have_data(session, competition, account)
    except AppError:
        return False
    return True


def terms_version(session: Session, competition: Competition) -> int:
    """Return the number of the terms that are in force; 0 without terms."""
    if not stored_file(competition).participation.terms:
        return 0
    latest = participation_repository.latest_text(session, competition.root_id, TERMS)
    return latest.version if latest else 0


def mailbox(address: str) -> str:
    """Return what two spellings of one mailbox have in common: capitals and what follows a plus do not count."""
    local, _, domain = address.strip().lower().rpartition("@")
    return f"{local.partition('+')[0]}@{domain}"


def _admitted(session: Session, competition: Competition, account: Account) -> tuple[str, str]:
    """Return the state of a standing, and why."""
    row = session.get(Participant, (competition.root_id, account.id))
    if row is not None and row.state == ParticipantState.REFUSED:
        return row.state, row.reason
    is_open = stored_file(competition).participation.admission == "open"
    if is_open or (row is not None and row.state == ParticipantState.ADMITTED):
        return "admitted", ""
    confirmed = account.email.lower() if account.email and account.email_confirmed_at else ""
    if confirmed and participation_repository.has_address(session, competition.root_id, confirmed):
        return "admitted", ""
    # Who was in a team before the organisers closed the door stays in it.
    is_in = participation_repository.is_member(session, competition.root_id, account.id)
    if is_in or organises(session, competition, account):
        return "admitted", ""
    return (row.state, "") if row is not None else ("none", "")


def _shares_address(session: Session, competition: Competition, account: Account) -> bool:
    """Return whether somebody else in a team has the mailbox of an account that is in none."""
    if participation_repository.is_member(session, competition.root_id, account.id):
        return False
    own = mailbox(account.email or "")
    members = participation_repository.addresses_of_members(session, competition.root_id, pattern=_like(own))
    return any(mailbox(address) == own for address in members)


def _like(box: str) -> str:
    """Return a pattern of every spelling of a mailbox, and of some other addresses."""
    local, _, domain = box.partition("@")
    escaped = [part.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") for part in (local, domain)]
    return f"{escaped[0]}%@{escaped[1]}"


def _not_admitted(competition: Competition, state: str, reason: str) -> NotAllowed:
    slug, admission = lifecycle.whole_slug(competition), stored_file(competition).participation.admission
    if state == ParticipantState.REFUSED:
        return NotAllowed(f"The organisers of {slug} have refused you: {reason}")
    if state == ParticipantState.ASKED:
        return NotAllowed(f"You have asked to take part in {slug}; its organisers have not answered yet")
    if admission == "invited":
        return NotAllowed(f"{slug} is for those whom its organisers invite, by a link or by their e-mail address")
    return NotAllowed(f"{slug} is for those whom its organisers accept; ask them first: lethe join {slug}")


def _shares(competition: Competition) -> NotAllowed:
    slug = lifecycle.whole_slug(competition)
    return NotAllowed(f"Somebody in a team of {slug} has your e-mail address; a person takes part with one account")


def _lacking(competition: Competition, standing: Standing) -> AppError | None:
    slug = lifecycle.whole_slug(competition)
    if standing.state != "admitted":
        return _not_admitted(competition, standing.state, standing.reason)
    if standing.lacks_address:
        return NotAllowed(f"{slug} takes accounts with a confirmed e-mail address only; confirm yours first")
    if standing.shares_address:
        return _shares(competition)
    if standing.lacks_terms:
        version = standing.terms_version
        return NotAllowed(f"Accept the terms of {slug} first (version {version}): lethe join {slug} --accept {version}")
    return None
