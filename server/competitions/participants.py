"""Participants and organisers of a competition: who they are, how they come and go."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field
from sqlalchemy.orm import Session

from lethe.errors import InvalidInput, NotFound, Violation
from server import audit
from server.accounts import accounts
from server.accounts.accounts import clean_address
from server.accounts.passwords import digest, new_token
from server.competitions import competition_repository, lifecycle, participation, participation_repository
from server.competitions.stored_file import stored_file
from server.db import now
from server.errors import Conflict, NotAllowed
from server.models.account import Account, Role
from server.models.competition import Competition, CompetitionOrganiser
from server.models.participation import AdmissionLink, AdmittedAddress, Participant, ParticipantState
from server.notifications import dispatch, notification_repository, outbox

MAX_OPEN = 50
UNUSABLE = "The link is unknown, used up, revoked or expired"


@dataclass(frozen=True)
class IssuedLink:
    """A link at the only time when it can be read."""

    row: AdmissionLink
    token: str


def make(session: Session, competition: Competition, *, days: int, uses: int, label: str, actor: Account) -> IssuedLink:
    """Make a link that admits `uses` people within `days` days. Raises Conflict in an open competition."""
    lifecycle.require_no_task(competition)
    competition = competition_repository.locked(session, competition.id)
    if stored_file(competition).participation.admission == "open":
        raise Conflict(f"{competition.slug} is open to everybody: it needs no link")
    if len(participation_repository.open_links(session, competition.id, now())) >= MAX_OPEN:
        raise Conflict(f"There are {MAX_OPEN} open links; revoke one first")
    token = new_token()
    row = AdmissionLink(
        competition_id=competition.id,
        token_hash=digest(token),
        label=label.strip(),
        created_by=actor.id,
        expires_at=now() + timedelta(days=days),
        uses=0,
        most_uses=uses,
    )
    session.add(row)
    session.flush()
    data = {"label": row.label, "uses": uses, "expires_at": row.expires_at.isoformat()}
    audit.record(session, actor, "admission_link.made", competition=competition, subject=row.id, data=data)
    return IssuedLink(row, token)


def open_links(session: Session, competition: Competition) -> Sequence[AdmissionLink]:
    """Return the links that still admit somebody, the newest first."""
    return participation_repository.open_links(session, competition.id, now())


def revoke(session: Session, competition: Competition, link_id: str, *, actor: Account) -> None:
    """End a link. Who came by it stays. Raises NotFound."""
    row = session.get(AdmissionLink, link_id)
    if row is None or row.competition_id != competition.id or row.revoked_at is not None:
        raise NotFound(UNUSABLE)
    row.revoked_at = now()
    audit.record(session, actor, "admission_link.revoked", competition=competition, subject=row.id)


def find(session: Session, slug: str, token: str) -> Competition:
    """Return the competition that a link leads to, also one that the caller does not see yet. Raises NotFound."""
    return _found(session, slug, token)[0]


def use(session: Session, slug: str, token: str, *, account: Account) -> Competition:
    """Admit `account` by a link. Who is admitted already uses nothing up. Raises NotFound, or NotAllowed if refused."""
    competition, row = _found(session, slug, token)
    row = participation_repository.locked_link(session, row.id)
    if not _is_open(row):  # used up by somebody else meanwhile
        raise NotFound(UNUSABLE)
    if admit_by_link(session, competition, account=account):
        row.uses += 1
        data = {"account": account.name, "link": row.id}
        audit.record(
            session, account, "participant.came_by_link", competition=competition, subject=account.name, data=data
        )
    return competition


def _found(session: Session, slug: str, token: str) -> tuple[Competition, AdmissionLink]:
    competition = competition_repository.by_slug(session, slug)
    row = participation_repository.link_by_hash(session, digest(token))
    if competition is None or row is None or row.competition_id != competition.id or not _is_open(row):
        raise NotFound(UNUSABLE)
    return competition, row


def _is_open(row: AdmissionLink) -> bool:
    return row.revoked_at is None and row.expires_at > now() and row.uses < row.most_uses


PAGE_SIZE = 100
MAX_ADDRESSES = 5000
ADDRESS = re.compile(r"[^\s@]{1,64}@[^\s@]{1,189}")
S = ParticipantState
count_asked = participation_repository.count_asked


@dataclass(frozen=True)
class ListedParticipant:
    """A person about whom something was asked or decided."""

    name: Annotated[str, Field(examples=["ada"])]
    state: Annotated[str, Field(description="asked, admitted, refused", examples=["asked"])]
    message: str
    reason: Annotated[str, Field(description="of the decision")]
    created_at: datetime
    decided_at: datetime | None
    terms_version: Annotated[int | None, Field(description="the last version of the terms that they accepted")]
    terms_accepted_at: datetime | None


def ask(session: Session, competition: Competition, *, message: str, account: Account) -> Participant:
    """Request admission. Raises Conflict where none is needed, or if it was requested before."""
    lifecycle.require_no_task(competition)
    competition = competition_repository.locked(session, competition.id)
    if stored_file(competition).participation.admission != "approved":
        raise Conflict(f"Nobody is asked for admission to {competition.slug}")
    standing = participation.standing(session, competition, account)
    if standing.state != "none":
        raise Conflict(f"Your admission to {competition.slug} is decided, or was asked for: {standing.state}")
    row = Participant(
        competition_id=competition.id, account_id=account.id, state=S.ASKED.value, message=message.strip()
    )
    session.add(row)
    session.flush()
    _record(session, competition, "participant.asked", account, actor=account)
    text = f"{account.name} asks to take part in {competition.title}:\n\n{row.message or '(without a message)'}"
    organisers = notification_repository.addresses_of_organisers(session, competition.id)
    path = f"/organise/{competition.slug}/participants"
    dispatch.write(session, competition, organisers, subject="a request to take part", text=text, path=path)
    return row


def decide(
    session: Session, competition: Competition, name: str, *, admit: bool, reason: str, actor: Account
) -> Participant:
    """Admit or refuse a person, who is written to; one refused later is removed. Raises NotFound or Conflict."""
    lifecycle.require_no_task(competition)
    competition = competition_repository.locked(session, competition.id)
    account = accounts.find(session, name)
    state = S.ADMITTED if admit else S.REFUSED
    if not admit and participation.organises(session, competition, account):
        raise Conflict(f"{account.name} organises {competition.slug}, and is not refused")
    row = session.get(Participant, (competition.id, account.id))
    if row is None:
        row = Participant(competition_id=competition.id, account_id=account.id, message="")
        session.add(row)
    elif row.state == state:
        raise Conflict(f"{account.name} is {state} already")
    row.state, row.reason = state.value, reason.strip()
    row.decided_at, row.decided_by = now(), actor.id
    session.flush()
    action = "participant.admitted" if admit else "participant.refused"
    _record(session, competition, action, account, actor=actor, reason=reason)
    said, why = "admitted" if admit else "not admitted", f"\n\nReason: {row.reason}" if row.reason else ""
    text, path = f"You are {said} to {competition.title}.{why}", f"/competitions/{competition.slug}"
    own = notification_repository.addresses_of_account(session, account.id)
    dispatch.write(session, competition, own, subject=said, text=text, path=path)
    return row


def admit_by_link(session: Session, competition: Competition, *, account: Account) -> bool:
    """Admit who came by a link. Return False if that was done before. Raises NotAllowed for who was refused."""
    row = session.get(Participant, (competition.id, account.id))
    if row is not None and row.state == S.REFUSED:
        raise NotAllowed(f"The organisers of {competition.slug} have refused you: {row.reason}")
    if participation.standing(session, competition, account).state == "admitted":
        return False
    if row is None:
        row = Participant(competition_id=competition.id, account_id=account.id)
        session.add(row)
    row.state, row.decided_at = S.ADMITTED.value, now()
    session.flush()
    return True


def list_participants(
    session: Session, competition: Competition, *, state: str, page: int
) -> tuple[list[ListedParticipant], bool]:
    """Return a page (from 1) of those about whom something was asked or decided, and whether there is another."""
    offset = (page - 1) * PAGE_SIZE
    rows = participation_repository.participants(
        session, competition.id, state=state, offset=offset, limit=PAGE_SIZE + 1
    )
    shown = rows[:PAGE_SIZE]
    accepted = participation_repository.acceptances(session, competition.id, [row.account_id for row in shown])
    listed = []
    for row in shown:
        terms = accepted.get(row.account_id)
        listed.append(
            ListedParticipant(
                name=row.account.name,
                state=row.state,
                message=row.message,
                reason=row.reason,
                created_at=row.created_at,
                decided_at=row.decided_at,
                terms_version=terms.version if terms else None,
                terms_accepted_at=terms.accepted_at if terms else None,
            )
        )
    return listed, len(rows) > PAGE_SIZE


def addresses(session: Session, competition: Competition) -> list[str]:
    """Return the addresses whose confirmed owners are admitted."""
    return [row.address for row in participation_repository.addresses(session, competition.id)]


def change_addresses(
    session: Session, competition: Competition, *, add: Collection[str], remove: Collection[str], actor: Account
) -> list[str]:
    """Add and remove addresses; new ones are written to. Return all. Raises InvalidInput or Conflict."""
    lifecycle.require_no_task(competition)
    competition = competition_repository.locked(session, competition.id)
    if add and not outbox.sends_mail():
        raise Conflict("This instance sends no e-mail, so nobody could confirm an address; make links instead")
    wanted, gone = _checked(add), _checked(remove)
    known = set(addresses(session, competition))
    new = sorted(wanted - known)
    if len(known | wanted) > MAX_ADDRESSES:
        allowed = f"may be at most {MAX_ADDRESSES}"
        raise InvalidInput(f"The addresses {allowed}", violations=(Violation("add", allowed),))
    session.add_all(
        AdmittedAddress(competition_id=competition.id, address=address, added_by=actor.id) for address in new
    )
    participation_repository.remove_addresses(session, competition.id, gone)
    session.flush()
    data = {"added": len(new), "removed": len(gone & known)}
    audit.record(session, actor, "participant.addresses", competition=competition, subject=competition.slug, data=data)
    page = outbox.page_url(f"/competitions/{competition.slug}")
    text = f"You are invited to take part in {competition.title}. Register with this address, and confirm it:\n{page}\n"
    outbox.queue_mails(session, new, subject=f"{competition.title}: you are invited", body=text)
    return addresses(session, competition)


def _checked(given: Collection[str]) -> set[str]:
    cleaned = {word for address in given if (word := clean_address(address))}
    for address in sorted(cleaned):
        if not ADDRESS.fullmatch(address):
            wrong = Violation("add", "is not an e-mail address", address[:120])
            raise InvalidInput(f"{address[:120]!r} is not an e-mail address", violations=(wrong,))
    return cleaned


def _record(
    session: Session, competition: Competition, action: str, account: Account, *, actor: Account, reason: str = ""
) -> None:
    data = {"account": account.name}
    audit.record(session, actor, action, competition=competition, subject=account.name, reason=reason, data=data)


organisers_of = competition_repository.organisers


def add_organiser(session: Session, competition: Competition, name: str, *, actor: Account, reason: str) -> Account:
    """Add an organiser. Raises NotFound, InvalidInput for a participant, or Conflict."""
    account = accounts.find(session, name)
    if account.role == Role.PARTICIPANT:
        allowed = "is a participant; an administrator makes organisers"
        raise InvalidInput(f"{account.name} {allowed}", violations=(Violation("name", allowed, account.name),))
    lifecycle.require_no_task(competition)
    competition = competition_repository.locked(session, competition.id)
    if competition_repository.organises(session, competition_id=competition.id, account_id=account.id):
        raise Conflict(f"{account.name} organises {competition.slug} already")
    session.add(CompetitionOrganiser(competition_id=competition.id, account_id=account.id))
    _record_organiser(session, competition, "competition.organiser_added", account, actor=actor, reason=reason)
    return account


def remove_organiser(session: Session, competition: Competition, name: str, *, actor: Account, reason: str) -> Account:
    """Remove an organiser. Raises NotFound, or Conflict for the last one."""
    lifecycle.require_no_task(competition)
    account = accounts.find(session, name)
    competition = competition_repository.locked(session, competition.id)
    if not competition_repository.organises(session, competition_id=competition.id, account_id=account.id):
        raise Conflict(f"{account.name} does not organise {competition.slug}")
    if len(organisers_of(session, competition)) == 1:
        raise Conflict(f"{account.name} is the last organiser of {competition.slug}; add another one first")
    competition_repository.remove_organiser(session, competition_id=competition.id, account_id=account.id)
    _record_organiser(session, competition, "competition.organiser_removed", account, actor=actor, reason=reason)
    return account


def _record_organiser(
    session: Session, competition: Competition, action: str, account: Account, *, actor: Account, reason: str
) -> None:
    data = {"account": account.name}
    audit.record(session, actor, action, competition=competition, subject=account.id, reason=reason, data=data)
