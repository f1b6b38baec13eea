"""Links that admit people to a competition: made by its organisers, with an end and a number of uses."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy.orm import Session

from lethe.errors import NotFound
from server import audit
from server.accounts.passwords import digest, new_token
from server.competitions import competition_repository, lifecycle, participants, participation_repository
from server.competitions.stored_file import stored_file
from server.db import now
from server.errors import Conflict
from server.models.account import Account
from server.models.competition import Competition
from server.models.participation import AdmissionLink

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
    if participants.admit_by_link(session, competition, account=account):
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
